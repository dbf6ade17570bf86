"""JSON objects in requests."""

from __future__ import annotations

import json
from typing import Any, TypeVar, overload

from starlette.requests import Request

from det_core.errors import CallTooLarge
from det_core.tracking.remote import check_values
from det_server._refusal import RefusedError

T = TypeVar("T")
_REQUIRED = object()
_NAMES = {str: "text", int: "an integer", bool: "true or false", dict: "an object", list: "a list"}


class JsonBody:
    """JSON object of a request.

    Args:
        request: an admitted request, whose body has been read.

    Raises:
        RefusedError: the body is not a JSON object.
    """

    def __init__(self, request: Request) -> None:
        body = request.state.body or b"{}"
        try:
            check_values(body)
            found = json.loads(body.decode(errors="surrogatepass"))  # bytes may be UTF-16, which hides brackets
        except (CallTooLarge, ValueError, RecursionError) as error:
            raise RefusedError(400, f"the body cannot be read as JSON: {error}") from None
        if not isinstance(found, dict):
            raise RefusedError(400, "the body is not a JSON object")
        self._fields: dict[str, Any] = found

    @overload
    def get(self, name: str, kind: type[T]) -> T: ...
    @overload
    def get(self, name: str, kind: type[T], default: T | None) -> T | None: ...

    def get(self, name: str, kind: type[T], default: Any = _REQUIRED) -> Any:
        """Return a field.

        Args:
            name: name of the field.
            kind: type that it must have.
            default: value if it is missing or null. Without a default, it is required.

        Raises:
            RefusedError: the field is missing, or has another type.
        """
        value = self._fields.get(name)
        if value is None and default is not _REQUIRED:
            return default
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise RefusedError(400, f"{name}: expected {_NAMES[kind]}, got {value!r:.100}")
        return value
