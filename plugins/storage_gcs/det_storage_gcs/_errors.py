"""Translation of the errors of Google's client into det's errors.

No text contains a URL, because the URL of a resumable upload is a secret.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

import requests
import urllib3
from google.api_core.exceptions import GoogleAPICallError
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, RefreshError, TransportError

from det_core.errors import StorageError
from det_core.interfaces.object_store import TransientError

_LOGIN = (
    "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to the path of "
    "a service account's key file"
)
# Messages by HTTP status, with the cause and the remedy.
_MESSAGES = {
    401: f"the server refused the credentials, which may be expired or revoked; {_LOGIN}",
    403: "permission denied: {said}; grant it, for example with `gcloud storage buckets add-iam-policy-binding "
    "gs://{bucket} --role=roles/storage.objectUser --member=...`",
    404: "there is no bucket {bucket!r}; create it with `gcloud storage buckets create gs://{bucket}`, or correct "
    "checkpoint_storage.bucket",
    412: "another request wrote the same object at the same time",  # an earlier attempt, or another client
}
_OTHER_MESSAGE = "the server refused the request: {said} (HTTP status {status})"
_TRANSIENT_STATUSES = {408, 412, 429}
_CORRUPTED = "doesn't match calculated"  # part of the text of status 400 if data and checksum do not match

# Failures without a response. The first matching class says whether the failure may be temporary, and gives the message
# with the cause and the remedy.
_FAILURES: tuple[tuple[type[Exception], bool, str], ...] = (
    (DefaultCredentialsError, False, f"no usable credentials: {{error}}; {_LOGIN}"),
    (TransportError, True, "cannot reach the server that issues credentials; check the network"),
    (RefreshError, False, f"the credentials could not be refreshed; {_LOGIN}"),
    (GoogleAuthError, False, f"the credentials cannot be used; {_LOGIN}"),
    (requests.exceptions.SSLError, True, "cannot make a trusted connection to {endpoint}; check the clock, the "
     "proxy and its certificate (REQUESTS_CA_BUNDLE)"),
    (requests.exceptions.Timeout, True, "{endpoint} did not answer in time; check the network, or raise "
     "checkpoint_storage.timeout"),
    (requests.exceptions.ConnectionError, True, "cannot reach {endpoint}, or it broke the connection; check the "
     "network, the proxy and STORAGE_EMULATOR_HOST"),
    (requests.exceptions.RequestException, True, "the response of {endpoint} was incomplete"),
    (urllib3.exceptions.HTTPError, True, "the response of {endpoint} was incomplete"),
)  # fmt: skip


@contextmanager
def translate_errors(bucket: str, endpoint: str, key: str | None = None) -> Iterator[None]:
    """Translate errors that the client raises in the block.

    Args:
        bucket: name of the bucket, for error messages.
        endpoint: address of the server, for error messages.
        key: key of the object that is read, or None if only the bucket can be missing.

    Raises:
        FileNotFoundError: the object does not exist.
        TransientError: the error may be temporary.
        StorageError: any other error. The message says what to do.
    """
    try:
        yield
    except GoogleAPICallError as error:
        raise _from_answer(error, bucket, key) from error
    except tuple(each for each, _, _ in _FAILURES) as error:
        raise _from_failure(error, bucket, endpoint) from error


def _from_answer(error: GoogleAPICallError, bucket: str, key: str | None) -> Exception:
    status, said = int(error.code or 0), _said(error)
    if status == HTTPStatus.NOT_FOUND and key is not None and "bucket does not exist" not in said:
        return FileNotFoundError(key)
    text = f"gs://{bucket}: " + _MESSAGES.get(status, _OTHER_MESSAGE).format(bucket=bucket, said=said, status=status)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _TRANSIENT_STATUSES or _CORRUPTED in said:
        return TransientError(text, _retry_after(error))
    return StorageError(text)


def _from_failure(error: Exception, bucket: str, endpoint: str) -> Exception:
    passing, text = next((passing, text) for each, passing, text in _FAILURES if isinstance(error, each))
    text = f"gs://{bucket}: " + text.format(endpoint=endpoint, error=error)
    return TransientError(text) if passing or getattr(error, "retryable", False) else StorageError(text)


def _said(error: GoogleAPICallError) -> str:
    """Return the server's error message, from plain text for downloads and from JSON for all other requests."""
    text = error.response.text if error.response is not None else ""
    try:
        return str(error.response.json()["error"]["message"])
    except (AttributeError, LookupError, TypeError, ValueError):
        words = " ".join(text.split())
        return words[:300] if words and not words.startswith("<") else "no reason given"


def _retry_after(error: GoogleAPICallError) -> float | None:
    """Return the number of seconds that the server asks to wait, or None if it does not say."""
    value = error.response.headers.get("Retry-After", "") if error.response is not None else ""
    return float(value) if value.isdecimal() else None
