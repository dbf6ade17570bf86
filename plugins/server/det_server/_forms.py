"""HTML forms in requests."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl

from starlette.requests import Request

from det_server._refusal import RefusedError

_TYPE = "application/x-www-form-urlencoded"
_MOST_FIELDS = 100


class Form:
    """Fields of a form.

    Args:
        fields: texts by name.
    """

    def __init__(self, fields: Mapping[str, str]) -> None:
        self._fields = fields

    def get(self, name: str, default: str = "") -> str:
        """Return the text of a field, without surrounding white space."""
        return self._fields.get(name, default).strip()

    def require(self, name: str) -> str:
        """Return the text of a field.

        Raises:
            RefusedError: the field is empty or missing.
        """
        text = self.get(name)
        if not text:
            raise RefusedError(400, f"{name.replace('_', ' ')} is empty; fill in the field")
        return text

    def password(self, name: str) -> str:
        """Return the text of a field as it was typed."""
        return self._fields.get(name, "")


def read_form(request: Request) -> Form:
    """Return the form of an admitted request, whose body has been read.

    Raises:
        RefusedError: the body is not a form.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in (_TYPE, "") or (request.state.body and not kind):
        raise RefusedError(415, f"expected a form ({_TYPE}), got {kind[:100] or 'no content type'}")
    try:
        text = request.state.body.decode()
        pairs = parse_qsl(
            text, keep_blank_values=True, max_num_fields=_MOST_FIELDS, strict_parsing=bool(text), errors="strict"
        )
    except ValueError as error:
        raise RefusedError(400, f"the form cannot be read: {error}") from None
    return Form({name: value.replace("\r\n", "\n") for name, value in pairs})
