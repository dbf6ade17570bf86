"""Translation of botocore's errors into det's errors, with advice for the user. No text contains secrets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import botocore.exceptions as boto
import urllib3.exceptions
from botocore.parsers import ResponseParserError
from botocore.retries.standard import ThrottledRetryableChecker, TransientRetryableChecker

from det_core.errors import StorageError
from det_core.interfaces.object_store import TransientError

_TRANSIENT_CODES: Final = frozenset(
    [
        "BadDigest",
        "ConditionalRequestConflict",
        "DependencyTimeoutException",
        "IncompleteBody",
        "InternalError",
        "KMSInternalException",
        "KeyUnavailableException",
        "OperationAborted",
        "RequestLimitExceeded",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
        "Throttling",
        "XAmzContentChecksumMismatch",
        "XAmzContentSHA256Mismatch",
        *ThrottledRetryableChecker._THROTTLED_ERROR_CODES,
        *TransientRetryableChecker._TRANSIENT_ERROR_CODES,
    ]
)
"""Codes of errors that are temporary regardless of their HTTP status, including those that botocore retries.

Errors with status 429 or 5xx are temporary, too."""

_KMS: Final = "KMS."
"""Prefix of the codes of the service that encrypts objects, for which S3 answers with status 400."""

_MISSING: Final = frozenset(["404", "NoSuchKey"])

_MESSAGES: Final = {
    code: text
    for codes, text in {
        "NoSuchBucket": "bucket {bucket} does not exist at {endpoint}; create it (aws s3 mb s3://{bucket}) or correct "
        "checkpoint_storage.bucket",
        "InvalidBucketName": "{bucket!r} is not a valid bucket name; correct checkpoint_storage.bucket",
        "404 405": "{endpoint} does not speak S3: it answered {code} to {operation}; correct "
        "checkpoint_storage.endpoint_url",
        "InvalidAccessKeyId": "{endpoint} does not know the access key; correct checkpoint_storage.access_key, or "
        "the credentials of boto3 (type: aws sts get-caller-identity)",
        "SignatureDoesNotMatch": "{endpoint} says that the secret key does not match the access key; correct "
        "checkpoint_storage.secret_key, or the credentials of boto3 (AWS_SECRET_ACCESS_KEY, ~/.aws/credentials)",
        "AccessDenied AllAccessDisabled 403": "permission denied by bucket {bucket} at {endpoint}: the user needs "
        "{permission}; change the policy of the user or of the bucket",
        "AccountProblem InvalidPayer NotSignedUp": "{endpoint} refuses the account ({code}); ask its owner to check "
        "the sign-up and the billing",
        "ExpiredToken ExpiredTokenException InvalidToken TokenRefreshRequired": "the session token has expired; get "
        "a new one (type: aws sso login, or set AWS_SESSION_TOKEN again)",
        "PermanentRedirect AuthorizationHeaderMalformed IllegalLocationConstraintException TemporaryRedirect 301 307": (
            "bucket {bucket} is in another region{region}; set checkpoint_storage.region"
        ),
        "NoSuchUpload": "an upload to bucket {bucket} was removed while it was in progress, either by det "
        "checkpoint gc --orphans or by a lifecycle rule of the bucket, which should spare uploads younger than a day",
        "RequestTimeTooSkewed": "the clock of this host differs from that of {endpoint} by more than 15 minutes; "
        "set it (type: timedatectl)",
        "KeyTooLongError InvalidObjectName": "the name of a file is too long for {endpoint} (at most 1024 bytes, "
        "including prefix and checkpoint id); shorten it, or checkpoint_storage.prefix",
        "EntityTooLarge QuotaExceeded": "bucket {bucket} accepts no more data ({code}); delete checkpoints (type: "
        "det checkpoint gc) or raise its quota",
        "InvalidArgument InvalidRequest MalformedXML MissingContentMD5 NotImplemented XNotImplemented": (
            "{endpoint} does not understand {operation} ({code}: {message}); try "
            "checkpoint_storage.request_checksum_calculation: when_required"
        ),
    }.items()
    for code in codes.split()
}
"""Error messages by the code of a response."""

_PERMISSIONS: Final = {
    "AbortMultipartUpload": "s3:AbortMultipartUpload",
    "CompleteMultipartUpload": "s3:PutObject",
    "CreateMultipartUpload": "s3:PutObject",
    "DeleteObject": "s3:DeleteObject",
    "DeleteObjects": "s3:DeleteObject",
    "GetObject": "s3:GetObject",
    "HeadObject": "s3:GetObject",
    "ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "ListObjectsV2": "s3:ListBucket",
    "ListParts": "s3:ListMultipartUploadParts",
    "PutObject": "s3:PutObject",
    "UploadPart": "s3:PutObject",
}

_TRANSMISSION_ERRORS: Final = (
    boto.ConnectionError,
    boto.FlexibleChecksumError,
    boto.HTTPClientError,
    boto.IncompleteReadError,
    boto.CredentialRetrievalError,
    boto.MetadataRetrievalError,
    ResponseParserError,
    urllib3.exceptions.HTTPError,
    OSError,
)
"""Errors that prevented the transmission of a request or its response. A retry may succeed."""

_UNSENT_MESSAGES: Final[dict[type[Exception] | tuple[type[Exception], ...], str]] = {
    (boto.NoCredentialsError, boto.PartialCredentialsError): "no credentials for {endpoint}; set "
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or type: aws configure, or give access_key and "
    "secret_key in checkpoint_storage",
    boto.ProfileNotFound: "{error}; correct AWS_PROFILE, or type: aws configure list-profiles",
    (boto.SSOError, boto.TokenRetrievalError, boto.NoAuthTokenError): "the login has expired; type: aws sso login",
    boto.InvalidRegionError: "{error}; correct checkpoint_storage.region or AWS_REGION",
    boto.ParamValidationError: "{bucket!r} is not a valid bucket name; correct checkpoint_storage.bucket",
    boto.BotoCoreError: "botocore cannot send a request to {endpoint}: {error}",
}
"""Messages for errors that occur before a request is sent. The first matching class applies."""


class ErrorTranslator:
    """Translator that turns botocore's errors of requests to one bucket into det's errors.

    Args:
        bucket: name of the bucket, for error messages.
        endpoint: address of the server, for error messages.
    """

    def __init__(self, bucket: str, endpoint: str) -> None:
        self._place = {"bucket": bucket, "endpoint": endpoint}

    @contextmanager
    def __call__(self, key: str = "") -> Iterator[None]:
        """Translate errors that requests raise in the block.

        Args:
            key: key of the object that is requested, or empty if there is none.

        Raises:
            FileNotFoundError: the object does not exist.
            TransientError: the error may be temporary.
            StorageError: any other error. The message says what to do.
        """
        try:
            yield
        except boto.ClientError as error:
            raise self._answer(error, key) from error
        except _TRANSMISSION_ERRORS as error:
            raise TransientError(f"cannot reach {self._place['endpoint']}: {_reason(error)}") from error
        except boto.BotoCoreError as error:
            text = next(text for kind, text in _UNSENT_MESSAGES.items() if isinstance(error, kind))
            raise StorageError(text.format(error=error, **self._place)) from error

    def _answer(self, error: boto.ClientError, key: str = "") -> Exception:
        """Return the exception to raise for a response that reports an error."""
        response: dict[str, Any] = error.response
        about, meta = response.get("Error", {}), response.get("ResponseMetadata", {})
        headers, code = meta.get("HTTPHeaders", {}), str(about.get("Code", "Unknown"))
        status = meta.get("HTTPStatusCode", 0)
        if error.operation_name == "GetObject" and code in _MISSING:
            return FileNotFoundError(key)
        if code.removeprefix(_KMS) in _TRANSIENT_CODES or ((status == 429 or status >= 500) and code not in _MESSAGES):
            return TransientError(
                f"{self._place['endpoint']} answered {code} to {error.operation_name}", _after(headers)
            )
        region = about.get("Region") or headers.get("x-amz-bucket-region")
        message = about.get("Message") or f"status {status}"
        text = _MESSAGES.get(code, "{endpoint} refuses {operation} on bucket {bucket}: {code}: {message}")
        return StorageError(
            text.format(
                code=code,
                message=message,
                operation=error.operation_name,
                permission=_PERMISSIONS.get(error.operation_name, error.operation_name),
                region=f", {region}" if region else "",
                **self._place,
            )
        )


def _after(headers: dict[str, str]) -> float | None:
    """Return the number of seconds that the server asks to wait, or None if it does not say."""
    given = headers.get("retry-after", "")
    return float(given) if given.isdecimal() else None


def _reason(error: Exception) -> str:
    """Return the text of the innermost error, which has no memory addresses and no URLs that contain keys."""
    while isinstance(inner := getattr(error, "kwargs", {}).get("error") or error.__cause__, Exception):
        error = inner
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
