"""JSON objects in requests."""

from __future__ import annotations

from typing import Any, TypeVar, overload

from starlette.requests import Request

from det_core.errors import CallTooLarge
from det_core.tracking.remote import load_values
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
            self._fields = load_values(body)
        except TypeError:
            raise RefusedError(400, "the body is not a JSON object") from None
        except (CallTooLarge, ValueError, RecursionError) as error:
            raise RefusedError(400, f"the body cannot be read as JSON: {error}") from None

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
