"""Results of the check."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """Something in a model directory that will not work, or will work in another way.

    Attributes:
        file: path of the file, relative to the directory.
        line: line number from 1, or None if the finding is about the whole file.
        kind: ``name``, ``argument``, ``member``, ``config``, ``entrypoint``, ``version`` or ``file``.
        message: what is wrong, and what to do.
        is_problem: whether the experiment will not work. Otherwise the finding is a note.
    """

    file: str
    line: int | None
    kind: str
    message: str
    is_problem: bool = True

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {'' if self.is_problem else 'note: '}{self.message}"
