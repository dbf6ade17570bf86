"""Checks that old code imports from ``determined.common.check``.

Each check takes its values and an optional reason, and raises `CheckFailedError` if it fails.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple


class CheckFailedError(Exception):
    """A check has failed."""


class _Check(NamedTuple):
    names: str
    """The short and the long name."""
    passes: Callable[..., Any]
    """Function of the values that returns whether the check passes."""
    expected: str
    """Text of the error. The values replace the braces."""


_CHECKS = (
    _Check("true check_true", operator.truth, "{} is not true"),
    _Check("false check_false", operator.not_, "{} is not false"),
    _Check("is_none check_none", lambda value: value is None, "{} is not None"),
    _Check("is_not_none check_not_none", lambda value: value is not None, "{} is None"),
    _Check("eq check_eq", operator.eq, "{} is not equal to {}"),
    _Check("not_eq check_not_eq", operator.ne, "{} is equal to {}"),
    _Check("gt check_gt", operator.gt, "{} is not greater than {}"),
    _Check("gt_eq check_gt_eq", operator.ge, "{} is less than {}"),
    _Check("lt check_lt", operator.lt, "{} is not less than {}"),
    _Check("lt_eq check_lt_eq", operator.le, "{} is greater than {}"),
    _Check("equal_lengths check_eq_len", lambda one, other: len(one) == len(other), "{} is not as long as {}"),
    _Check("len_eq check_len", lambda value, length: len(value) == length, "the length of {} is not {}"),
    _Check("is_in check_in", lambda value, container: value in container, "{} is not in {}"),
    _Check("not_in check_not_in", lambda value, container: value not in container, "{} is in {}"),
    _Check("is_type check_type", lambda value, kind: type(value) is kind, "the type of {} is not {}"),
    _Check("is_instance check_isinstance", isinstance, "{} is not an instance of {}"),
    _Check(
        "is_not_instance check_not_isinstance",
        lambda value, kind: not isinstance(value, kind),
        "{} is an instance of {}",
    ),
    _Check("is_subclass check_issubclass", issubclass, "{} is not a subclass of {}"),
)


def _make_function(name: str, check: _Check) -> Callable[..., None]:
    count = check.expected.count("{}")

    def require(*values: Any, reason: str | None = None) -> None:
        if len(values) == count + 1 and reason is None:
            *values, reason = values  # type: ignore[assignment]
        if len(values) != count:
            raise TypeError(f"{name}() takes {count} values and a reason, got {len(values)} values")
        if not check.passes(*values):
            text = check.expected.format(*map(repr, values))
            raise CheckFailedError(f"check failed: {text}" + (f": {reason}" if reason else ""))

    require.__name__ = require.__qualname__ = name
    require.__doc__ = f"Raise CheckFailedError if {check.expected.format('the value', 'the expected one')}."
    return require


FUNCTIONS = {name: _make_function(name, check) for check in _CHECKS for name in check.names.split()}
"""Checks by name."""

globals().update(FUNCTIONS)

__all__ = ["CheckFailedError", *FUNCTIONS]
