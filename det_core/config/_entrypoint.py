"""Entrypoint of a trial, which is a trial class or a command line."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Discriminator, Tag
from pydantic_core import PydanticCustomError

_TRIAL_CLASS = re.compile(r"[\w.]+:[\w.]+")


def _form(value: Any) -> str:
    return "list" if isinstance(value, (list, tuple)) else "text"


def _not_empty(entrypoint: str | tuple[str, ...]) -> str | tuple[str, ...]:
    if not entrypoint:
        raise PydanticCustomError("entrypoint", "expected a trial class `module:Class` or a command; write one")
    return entrypoint


Entrypoint = Annotated[
    Annotated[str, Tag("text")] | Annotated[tuple[str, ...], Tag("list")],
    Discriminator(_form),
    AfterValidator(_not_empty),
]


def is_command(entrypoint: str | tuple[str, ...] | None) -> bool:
    """Return whether the entrypoint is a command line. False for a trial class ``module:Class`` and for None."""
    return entrypoint is not None and not (isinstance(entrypoint, str) and _TRIAL_CLASS.fullmatch(entrypoint))
