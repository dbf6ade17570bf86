"""Translation of the errors of Azure's client into det's errors. No text contains a URL with a SAS token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from azure.core import exceptions as azure

from det_core.errors import StorageError
from det_core.interfaces.object_store import TransientError

_ALLOW: Final = (
    "correct the credential; a SAS token and the firewall of the account must allow this host to read, write, list and "
    "delete"
)
_MESSAGES: Final = {
    "ContainerNotFound": "there is no container {container!r}; create it with `az storage container create --name "
    "{container}`, or correct checkpoint_storage.container",
    "AuthenticationFailed": "the credential was refused; correct checkpoint_storage.connection_string or credential, "
    "and check the clock of this host and the end of the SAS token",
    "AuthorizationFailure": f"permission denied; {_ALLOW}",
    "AuthorizationPermissionMismatch": f"permission denied; {_ALLOW}",
    "NoAuthenticationInformation": "the container is not public; set checkpoint_storage.credential",
}
"""Causes and remedies by Azure's code of the error."""
_TRANSIENT: Final = {408, 429}


@contextmanager
def translate_errors(url: str, container: str, key: str | None = None) -> Iterator[None]:
    """Translate errors that the client raises in the block.

    Args:
        url: URL of the container, without secrets.
        container: name of the container.
        key: name of the blob that is read, or None if only the container can be missing.

    Raises:
        FileNotFoundError: the blob does not exist.
        TransientError: the error may be temporary.
        StorageError: any other error. The message says what to do.
    """
    try:
        yield
    except azure.HttpResponseError as error:
        raise _from_answer(error, url, container, key) from None  # the cause may quote the request
    except (azure.ServiceRequestError, azure.ServiceResponseError, azure.IncompleteReadError) as error:
        raise TransientError(
            f"{url}: cannot reach the server, or it broke the connection: {type(error).__name__}"
        ) from None
    except azure.AzureError as error:
        raise StorageError(f"{url}: the client cannot send the request: {type(error).__name__}") from None


def _from_answer(error: azure.HttpResponseError, url: str, container: str, key: str | None) -> Exception:
    status, code = error.status_code, getattr(error, "error_code", None) or "no reason given"
    code = str(getattr(code, "value", code))
    if not status:
        return StorageError(f"{url}: the credential is malformed; copy it whole")
    if status == 404 and key is not None and code != "ContainerNotFound":
        return FileNotFoundError(key)
    if code in _MESSAGES:
        return StorageError(f"{url}: {_MESSAGES[code].format(container=container)}")
    text = f"{url}: the server refused the request: {code} (HTTP status {status})"
    if status in _TRANSIENT or status >= 500 or code == "Md5Mismatch":
        return TransientError(text, _retry_after(error))
    return StorageError(text)


def _retry_after(error: azure.HttpResponseError) -> float | None:
    """Return the number of seconds that the server asks to wait, or None if it does not say."""
    value = getattr(error.response, "headers", {}).get("Retry-After", "")
    return float(value) if value.isdecimal() else None
