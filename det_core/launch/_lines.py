"""From the bytes that a process prints to lines of text, and the ranks that printed them."""

from __future__ import annotations

import codecs
import re
import time
from collections.abc import Callable, Iterator

_LONGEST = 1 << 16
"""Characters; longer lines are cut."""
_BAR_EVERY = 10.0
"""Seconds between two looks at a line that is overwritten again and again."""
_PREFIX = re.compile(r"\[rank=(\d+)\] ?|\[rank(\d+)\]: ?|\[default(\d+)\]:")
"""Written by our launchers, by torch.distributed around a traceback, and by ``torchrun --tee``."""

RANK_TEMPLATE = "[rank=${rank}] "
"""For torchrun's TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE: its own prefix tells only the local rank."""


class Lines:
    """Cuts one stream into lines of (rank, text); rank None = the line does not say.

    Of text that carriage returns overwrite, such as a progress bar, the last state counts.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._clock = clock
        self._looked_at = clock()
        self._rest = ""
        self._continues = False
        """Whether the beginning of the current line was given away already."""
        self._rank: int | None = None

    def feed(self, data: bytes) -> Iterator[tuple[int | None, str]]:
        """The lines that are known now; no data = the end of the stream."""
        *lines, self._rest = (self._rest + self._decode(data, final=not data)).split("\n")
        for line in lines:
            yield from self._line(line, ends=True)
        if self._rest and (not data or len(self._rest) > _LONGEST or self._is_bar()):
            yield from self._line(self._rest, ends=not data)
            self._rest = ""

    def _is_bar(self) -> bool:
        now = self._clock()
        due = "\r" in self._rest and now >= self._looked_at + _BAR_EVERY
        if due:
            self._looked_at = now
        return due

    def _line(self, line: str, *, ends: bool) -> Iterator[tuple[int | None, str]]:
        continues, self._continues = self._continues, not ends
        if not continues:
            self._rank, line = _split(line)
        text = line.rstrip("\r").rpartition("\r")[2]
        if continues and not text:
            return  # only the end of what was shown
        for start in range(0, len(text) or 1, _LONGEST):
            yield self._rank, text[start : start + _LONGEST]


def _split(line: str) -> tuple[int | None, str]:
    """The rank and the line without its prefixes."""
    rank = None
    while match := _PREFIX.match(line):
        rank = rank if rank is not None else int(match[match.lastindex or 0])
        # A launcher that forwards a line in two parts writes its prefix twice.
        line = line[match.end() :].replace(match.group(), "")
    return rank, line
