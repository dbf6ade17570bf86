"""Conversion of process output from bytes to lines with ranks."""

from __future__ import annotations

import codecs
import re
import time
from collections.abc import Callable, Iterator

_LONGEST = 1 << 16
"""Maximum length of a line in characters. Longer lines are split."""
_BAR_EVERY = 10.0
"""Seconds between two reports of a line that is overwritten repeatedly."""
_PREFIX = re.compile(r"\[rank=(\d{1,9})\] ?|\[rank(\d{1,9})\]: ?|\[default(\d{1,9})\]:", re.ASCII)
"""Prefixes with a rank, as written by our launchers, by torch.distributed in tracebacks, and by ``torchrun --tee``.

Programs may print larger numbers, which are no ranks."""

RANK_TEMPLATE = "[rank=${rank}] "
"""Value of TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE for torchrun, whose default prefix has only the local rank."""


class LineDecoder:
    """Incremental decoder that splits one stream into lines, each with the rank that printed it.

    The rank is None if the line has no prefix. Of text that carriage returns overwrite, such as a progress bar, only
    the last state counts.

    Args:
        clock: function that returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._clock = clock
        self._looked_at = clock()
        self._rest = ""
        self._continues = False
        """Whether the beginning of the current line has already been returned."""
        self._rank: int | None = None

    def feed(self, data: bytes) -> Iterator[tuple[int | None, str]]:
        """Yield the lines that are complete now, as pairs of rank and text.

        Args:
            data: the next bytes of the stream, or none at its end.
        """
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
            return  # only the end of a line that has been returned
        for start in range(0, len(text) or 1, _LONGEST):
            yield self._rank, text[start : start + _LONGEST]


def _split(line: str) -> tuple[int | None, str]:
    """Return the rank and the line without its prefixes."""
    rank = None
    while match := _PREFIX.match(line):
        rank = rank if rank is not None else int(match[match.lastindex or 0])
        # A launcher that forwards a line in two parts writes its prefix twice.
        line = line[match.end() :].replace(match.group(), "")
    return rank, line
