"""Paths, names, ids and numbers that break programs, and a time limit for calls with them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

TEXTS = {
    "empty": "",
    "spaces": " a  b ",
    "letters": "naïve 名前",
    "decomposed": "e\u0301",
    "emoji": "👩‍🔬",
    "right to left": "\u202eabc\u200f",
    "NUL": "a\0b",
    "line breaks": "a\nb\r",
    "escape": "\x1b[2J",
    "not UTF-8": "\udcff",
    "surrogate": "\ud800",
    "dot": ".",
    "parent": "..",
    "up and out": "../../a",
    "absolute": "/proc/a",
    "slash": "a/b",
    "backslash": "a\\b",
    "encoded": "%2e%2e%2f",
    "percent": "%s%",
    "query": "a?b=c",
    "fragment": "a#b",
    "option": "-rf",
    "assignment": "=",
    "colon": "a:b",
    "host": "http://[::1",
    "quotes": "'\"`$(a)",
    "braces": "{a}[0]",
    "null": "null",
    "long": "x" * 300,
    "very long": "y" * 70_000,
    "other digits": "٣",
    "superscript": "²",
    "many digits": "1" * 5000,
}
"""Names and paths by what is special about them."""

NUMBERS = {
    "zero": 0,
    "negative": -1,
    "negative zero": -0.0,
    "fraction": 0.5,
    "unknown id": 987654321,
    "beyond 32 bits": 2**32,
    "beyond 64 bits": 10**20,
    "beyond float": 10**400,
    "greatest": 1.7e308,
    "least": 5e-324,
    "infinite": float("inf"),
    "negative infinite": float("-inf"),
    "not a number": float("nan"),
}
"""Ids and numbers by what is special about them."""
_SECONDS = 20
"""Time after which a call is taken for one that waits. In the middle of other work, an interrupt may get lost."""


@contextmanager
def interrupted_after_seconds() -> Iterator[None]:
    """Interrupt the block, as Ctrl-C does, if it waits for something."""

    def interrupt(number: int, frame: object) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, _SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
