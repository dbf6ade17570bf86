"""Methods of old classes that det's classes do not have."""

from __future__ import annotations

from typing import Any, NoReturn

from det_core.core import DistributedContext
from determined._old_names import explain_missing


class _MissingMethod:
    """Attribute of a class that does not exist, and whose error says what to use instead.

    Args:
        path: old path of the method.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def __get__(self, instance: Any, owner: type) -> NoReturn:
        raise AttributeError(explain_missing(self._path))


def explain_missing_methods() -> None:
    """Let errors about missing methods of det's classes say what to use instead."""
    missing = _MissingMethod("determined.core.DistributedContext.from_tf_config")
    DistributedContext.from_tf_config = missing  # type: ignore[attr-defined]
