"""Limit on what a server reads of its database for one request, before that fills its memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from det_core.errors import CallTooLarge

__all__ = ["limited_reading"]

_OBJECT = 16
"""Number of characters that a list or an object in JSON counts as, because even an empty one takes that much memory."""
_left: ContextVar[list[int] | None] = ContextVar("characters left to read", default=None)


@contextmanager
def limited_reading(characters: int) -> Iterator[None]:
    """Limit the JSON, the texts and the lines of logs that this thread reads together during the block.

    Reading more raises CallTooLarge. Reports of metrics do not count, because they are read a few at a time. Neither
    does a single record, or the little that lists read of each record, such as with ``brief=True``.

    Args:
        characters: maximum number of characters.
    """
    before = _left.set([characters])
    try:
        yield
    finally:
        _left.reset(before)


@contextmanager
def uncounted_reading() -> Iterator[None]:
    """Count nothing during the block, for values whose own limits are enough."""
    before = _left.set(None)
    try:
        yield
    finally:
        _left.reset(before)


def count_read(characters: int) -> None:
    """Count characters that were read.

    Raises:
        CallTooLarge: they are more than `limited_reading` permits.
    """
    left = _left.get()
    if left is None:
        return
    left[0] -= characters
    if left[0] < 0:
        raise CallTooLarge(
            "there is too much to read it at once; ask for less, for example with limit, after, states or brief=True"
        )


def count_read_json(text: str) -> None:
    """Count JSON that is going to be decoded.

    Raises:
        CallTooLarge: as in `count_read`.
    """
    if _left.get() is not None:
        count_read(len(text) + _OBJECT * (text.count("{") + text.count("[")))
