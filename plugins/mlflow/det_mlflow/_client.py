"""Client of MLflow's REST API."""

from __future__ import annotations

import base64
import json
import os
import ssl
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from det_core.errors import DetError
from det_mlflow._config import MLflowConfig

_API = "/api/2.0/mlflow/"
_ARTIFACTS = "/api/2.0/mlflow-artifacts/artifacts/"
_INVALID = (400, 413, 422)
_LOGIN = (401, 403)
_EXCERPT = 300


class MLflowError(DetError):
    """The MLflow server cannot be used at present."""


class ServerUnreachableError(MLflowError):
    """The server does not answer, so that other requests would fail, too."""


class RequestRefused(MLflowError):
    """The server understood the request, and refuses its contents.

    Attributes:
        code: MLflow's name of the error, such as ``INVALID_PARAMETER_VALUE``, or "".
    """

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class RecordMissing(RequestRefused):
    """The server has no such record."""


class MLflowClient:
    """Client of one tracking server. Each request has a time limit and is made once.

    Redirects are not followed, because they would lose the body of a request, or send credentials to another host.

    Args:
        config: the config block.

    Attributes:
        address: address of the server.
        timeout: number of seconds without a byte from the server after which a request is aborted.
    """

    def __init__(self, config: MLflowConfig) -> None:
        self.address = config.tracking_uri
        self.timeout = config.timeout
        self._authorization = _authorization(config)
        is_secure = self.address.startswith("https:")
        self._opener = build_opener(_NoRedirects, *([HTTPSHandler(context=_tls_context())] if is_secure else []))

    def get(self, path: str, **query: str) -> Any:
        """Return the response to a GET request.

        Args:
            path: name of the call, such as ``runs/get``.
            query: parameters of the call.

        Raises:
            MLflowError: the server cannot be reached, or refuses the request.
        """
        return self._parsed(self._send("GET", f"{_API}{path}?{urlencode(query)}"))

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Return the response to a POST request.

        Args:
            path: name of the call, such as ``runs/create``.
            body: parameters of the call.

        Raises:
            MLflowError: the server cannot be reached, or refuses the request.
        """
        data = json.dumps(body, ensure_ascii=False, allow_nan=False).encode(errors="replace")
        return self._parsed(self._send("POST", _API + path, data, {"Content-Type": "application/json"}))

    def upload(self, path: str, content: bytes | Path) -> None:
        """Store an artifact.

        Args:
            path: path within the artifacts that the server stores itself.
            content: the content, or the file that contains it.

        Raises:
            MLflowError: the server cannot be reached, or refuses the request.
        """
        if isinstance(content, bytes):
            self._put(path, content, len(content))
        else:
            with content.open("rb") as file:
                self._put(path, file, content.stat().st_size)

    def _put(self, path: str, data: bytes | IO[bytes], size: int) -> None:
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        self._send("PUT", _ARTIFACTS + quote(path), data, headers)

    def _send(
        self, method: str, target: str, data: bytes | IO[bytes] | None = None, headers: Mapping[str, str] | None = None
    ) -> bytes:
        accepted = {"Accept": "application/json", **(headers or {})}
        request = Request(self.address + target, data, accepted, method=method)  # noqa: S310  (http or https)
        if self._authorization:
            request.add_unredirected_header("Authorization", self._authorization)
        try:
            with self._opener.open(request, timeout=self.timeout) as response:
                answer: bytes = response.read()
        except HTTPError as error:
            raise self._translate(error) from None
        except (URLError, OSError, HTTPException) as error:
            reason = error.reason if isinstance(error, URLError) else error
            raise ServerUnreachableError(
                f"cannot reach MLflow at {self.address}: {reason or repr(reason)}; check "
                "observers.mlflow.tracking_uri, and that the server runs"
            ) from None
        return answer

    def _parsed(self, data: bytes) -> Any:
        try:
            return json.loads(data)
        except ValueError:
            raise self._other_server(data) from None

    def _translate(self, error: HTTPError) -> MLflowError:
        with error:
            try:
                data = error.read()
            except (OSError, HTTPException):
                data = b""
        status, location = error.code, error.headers.get("Location")
        if location:
            return MLflowError(
                f"MLflow at {self.address} redirects to {location.partition('?')[0]}; "
                "set observers.mlflow.tracking_uri to the address of the server itself"
            )
        code, message = _error_of(data)
        if status in _LOGIN:
            return MLflowError(
                f"MLflow at {self.address} refuses access ({status}: {message}); set MLFLOW_TRACKING_TOKEN, or "
                "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or their keys in observers.mlflow"
            )
        if status == 404 and code:
            return RecordMissing(message, code)
        if status == 404:
            return self._other_server(data)
        if status in _INVALID:
            return RequestRefused(message, code)
        return MLflowError(f"MLflow at {self.address} failed with status {status}: {message}")

    def _other_server(self, data: bytes) -> MLflowError:
        return MLflowError(
            f"the server at {self.address} does not answer as MLflow does ({_error_of(data)[1]}); "
            "check observers.mlflow.tracking_uri"
        )


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def _error_of(data: bytes) -> tuple[str, str]:
    """Return MLflow's name of an error, or "", and the message."""
    try:
        answer = json.loads(data)
        return str(answer["error_code"]), str(answer.get("message", ""))[:_EXCERPT]
    except (ValueError, KeyError, TypeError):
        return "", " ".join(data[:_EXCERPT].decode(errors="replace").split()) or "no text"


def _authorization(config: MLflowConfig) -> str | None:
    """Return the header of the config, or else of the environment. As in MLflow, a user name precedes a token."""
    get = os.environ.get
    password, token = (secret.get_secret_value() if secret else None for secret in (config.password, config.token))
    for name, its_password, bearer in (
        (config.username, password or get("MLFLOW_TRACKING_PASSWORD"), token),
        (get("MLFLOW_TRACKING_USERNAME"), get("MLFLOW_TRACKING_PASSWORD"), get("MLFLOW_TRACKING_TOKEN")),
    ):
        if name:
            return "Basic " + base64.b64encode(f"{name}:{its_password or ''}".encode()).decode()
        if bearer:
            return f"Bearer {bearer}"
    return None


def _tls_context() -> ssl.SSLContext:
    """Return a context with the settings that MLflow reads from environment variables."""
    authority, certificate = (os.environ.get(f"MLFLOW_TRACKING_{side}_CERT_PATH") for side in ("SERVER", "CLIENT"))
    try:
        context = ssl.create_default_context(cafile=authority)
        if certificate:
            context.load_cert_chain(certificate)
    except OSError as error:
        raise MLflowError(
            f"cannot read a certificate: {error.strerror or error}; MLFLOW_TRACKING_SERVER_CERT_PATH is {authority}, "
            f"and MLFLOW_TRACKING_CLIENT_CERT_PATH is {certificate}"
        ) from error
    if os.environ.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() == "true":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
