"""Differences between the code of two experiments, found with limited work however the files look."""

from __future__ import annotations

import hashlib
import tarfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from det_core.launch.context_archive import open_archive

MOST_FILES = 2000
"""Maximum number of files that differ and are listed."""
MOST_DIFFS = 100
"""Maximum number of files whose lines are compared."""
MOST_LINES = 5000
"""Maximum number of lines of all differences together."""
_TOO_MANY_LINES = f"Only {MOST_LINES} lines of differences are shown."
MOST_TEXT = 200_000
"""Maximum number of bytes of a file whose lines are compared."""
MOST_CHANGES = 500
"""Maximum number of lines that are removed or added in a file whose differences are shown."""
MOST_SECONDS = 2.0
"""Maximum number of seconds of the processor for reading and splitting all files together."""
_TOO_LONG = f"To read and to compare the files takes more than {MOST_SECONDS:g} s."
_MOST_STEPS = 1_000_000
"""Maximum number of comparisons of lines of all files together, which take about a second."""
_LONGEST_LINE = 500
_CONTEXT = 3
_CHUNK = 1 << 20


@dataclass(frozen=True)
class DiffLine:
    """Line of a unified diff.

    Args:
        mark: ``+`` if it was added, ``-`` if it was removed, ``@`` for the position of what follows, or a space.
        text: the line.
    """

    mark: str
    text: str


@dataclass(frozen=True)
class FileChange:
    """File that differs.

    Args:
        name: path of the file.
        kind: ``added``, ``removed`` or ``changed``.
        lines: unified diff of its lines, or nothing.
        note: why there is no diff, or "".
    """

    name: str
    kind: str
    lines: Sequence[DiffLine] = ()
    note: str = ""


@dataclass(frozen=True)
class CodeDiff:
    """Differences between the code of two experiments.

    Args:
        changes: the files that differ, by name.
        left_out: number of further files that differ.
        error: why the code could not be compared, or "".
    """

    changes: Sequence[FileChange] = ()
    left_out: int = 0
    error: str = ""


@dataclass
class Budget:
    """Work that may still be done for one request.

    Args:
        steps: number of comparisons of lines.
        lines: number of lines of differences.
        deadline: time of the thread after which no further file is read.
    """

    steps: int = _MOST_STEPS
    lines: int = MOST_LINES
    deadline: float = field(default_factory=lambda: time.thread_time() + MOST_SECONDS)

    @property
    def is_late(self) -> bool:
        """Whether the deadline has passed."""
        return time.thread_time() > self.deadline


class _TooLongError(Exception):
    """The deadline passed while archives were read."""


def diff_archives(old: bytes, new: bytes, budget: Budget) -> CodeDiff:
    """Return the differences between two recorded context directories.

    Args:
        old: archive of the first one, or b"" if there is none.
        new: archive of the second one, or b"" if there is none.
        budget: work that may still be done, which is reduced.
    """
    if old == new:
        return CodeDiff()
    if budget.is_late:
        return CodeDiff(error=_TOO_LONG)
    try:
        before, after = _digests(old, budget), _digests(new, budget)
        names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
        shown = names[:MOST_FILES]
        kinds = {name: "added" if name not in before else "changed" if name in after else "removed" for name in shown}
        compared = [name for name in shown if kinds[name] == "changed"]
        compared += [name for name in shown if kinds[name] != "changed"]
        texts = [_contents(archive, set(compared[:MOST_DIFFS]), budget) for archive in (old, new)]
    except tarfile.TarError as error:
        return CodeDiff(error=f"An archive is damaged: {error}")
    except _TooLongError:
        return CodeDiff(error=_TOO_LONG)
    changes = {name: _change(name, kinds[name], texts, budget) for name in compared}
    return CodeDiff([changes[name] for name in shown], len(names) - len(shown))


def _digests(archive: bytes, budget: Budget) -> dict[str, bytes]:
    """Return a digest of each file of an archive by name."""
    found: dict[str, bytes] = {}
    for member, members in _files(archive, budget):
        digest = hashlib.sha256()
        if content := members.extractfile(member):
            while chunk := content.read(_CHUNK):
                digest.update(chunk)
        found[member.name] = digest.digest()
    return found


def _contents(archive: bytes, names: set[str], budget: Budget) -> dict[str, bytes]:
    """Return the beginnings of files of an archive by name."""
    return {
        member.name: content.read(MOST_TEXT + 1)
        for member, members in _files(archive, budget)
        if member.name in names and (content := members.extractfile(member))
    }


def _files(archive: bytes, budget: Budget) -> Iterator[tuple[tarfile.TarInfo, tarfile.TarFile]]:
    if archive:
        with open_archive(archive) as members:
            for member in members:
                if budget.is_late:
                    raise _TooLongError
                if member.isfile():
                    yield member, members


def _change(name: str, kind: str, texts: Sequence[Mapping[str, bytes]], budget: Budget) -> FileChange:
    old, new = (one.get(name) for one in texts)
    if old is None and new is None:
        return FileChange(name, kind, note=f"Only the lines of {MOST_DIFFS} files are compared.")
    contents = (old or b"", new or b"")
    if any(b"\0" in one for one in contents):
        return FileChange(name, kind, note="This file is not text.")
    if any(len(one) > MOST_TEXT for one in contents):
        return FileChange(name, kind, note=f"Only files of up to {MOST_TEXT // 1000} kB are compared.")
    if budget.is_late:
        return FileChange(name, kind, note=_TOO_LONG)
    before, after = (one.decode(errors="replace").splitlines() for one in contents)
    if abs(len(before) - len(after)) > budget.lines:
        return FileChange(name, kind, note=_TOO_MANY_LINES)
    begin = _common(before, after)
    end = _common(before[begin:][::-1], after[begin:][::-1])
    edits = find_edits(before[begin : len(before) - end], after[begin : len(after) - end], budget)
    if edits is None:
        return FileChange(name, kind, note=f"More than {MOST_CHANGES} lines differ, or there are too many to compare.")
    position = max(0, begin - _CONTEXT)
    around = (before[position:begin], before[len(before) - end :][:_CONTEXT])
    above, below = ([DiffLine(" ", line) for line in lines] for lines in around)
    lines = list(_unified([*above, *edits, *below], position + 1))
    budget.lines -= len(lines)
    if budget.lines < 0:
        return FileChange(name, kind, note=_TOO_MANY_LINES)
    return FileChange(name, kind, lines, "" if lines else "Only the ends of lines differ.")


def find_edits(old: Sequence[str], new: Sequence[str], budget: Budget) -> list[DiffLine] | None:
    """Return the lines of both texts in a shortest edit script, or None if that takes too much work.

    The algorithm is the greedy one of Myers, "An O(ND) Difference Algorithm and Its Variations" (1986). Its work is
    proportional to the number of lines times that of the differences.

    Args:
        old: lines of the first text.
        new: lines of the second one.
        budget: work that may still be done, which is reduced.
    """
    numbers: dict[str, int] = {}
    a, b = ([numbers.setdefault(line, len(numbers)) for line in lines] for lines in (old, new))
    path = _path(a, b, budget) if a and b else _straight_path(len(a), len(b))
    if path is None:
        return None
    edits = []
    for (x, y), (next_x, next_y) in pairwise(path):
        mark = " " if next_x > x and next_y > y else "-" if next_x > x else "+"
        edits.append(DiffLine(mark, new[y] if mark == "+" else old[x]))
    return edits


def _common(a: Sequence[object], b: Sequence[object]) -> int:
    """Return the number of equal items at the beginning."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _straight_path(removed: int, added: int) -> list[tuple[int, int]]:
    return [*((x, 0) for x in range(removed + 1)), *((removed, y) for y in range(1, added + 1))]


def _path(a: Sequence[int], b: Sequence[int], budget: Budget) -> list[tuple[int, int]] | None:
    """Return the positions in both texts after each step of a shortest edit script, or None."""
    furthest = {1: 0}
    """Greatest position in the first text by the difference of the positions."""
    rounds: list[dict[int, int]] = []
    for changes in range(min(len(a) + len(b), MOST_CHANGES) + 1):
        rounds.append({k: furthest[k] for k in range(-changes - 1, changes + 2, 2) if k in furthest})
        for k in range(-changes, changes + 1, 2):
            x = _start(furthest, k, changes)
            begin = x
            while x < len(a) and x - k < len(b) and a[x] == b[x - k]:
                x += 1
            furthest[k] = x
            budget.steps -= 1 + x - begin
            if x >= len(a) and x - k >= len(b):
                return _walk_back(rounds, len(a), len(b))
            if budget.steps < 0:
                return None
    return None


def _start(furthest: Mapping[int, int], k: int, changes: int) -> int:
    """Return the position in the first text after the next change on a diagonal."""
    return furthest[k + 1] if _is_added(furthest, k, changes) else furthest[k - 1] + 1


def _is_added(furthest: Mapping[int, int], k: int, changes: int) -> bool:
    """Return whether a path that reaches a diagonal with the last change adds a line."""
    return k == -changes or (k != changes and furthest[k - 1] < furthest[k + 1])


def _walk_back(rounds: Sequence[Mapping[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    path = deque([(x, y)])
    for changes in range(len(rounds) - 1, -1, -1):
        furthest, k = rounds[changes], x - y
        start = _start(furthest, k, changes) if changes else 0
        while x > start and (changes or y > 0):
            x, y = x - 1, y - 1
            path.appendleft((x, y))
        if changes:
            x, y = (x, y - 1) if _is_added(furthest, k, changes) else (x - 1, y)
            path.appendleft((x, y))
    return list(path)


def _unified(edits: Sequence[DiffLine], position: int) -> Iterator[DiffLine]:
    """Yield the lines that differ, those around them, and before each gap the position in both files.

    Args:
        edits: all lines from a position on.
        position: number of the first line in both files.
    """
    changed = [i for i, line in enumerate(edits) if line.mark != " "]
    shown = {near for i in changed for near in range(i - _CONTEXT, i + _CONTEXT + 1)}
    old = new = position
    last = -2
    for i, line in enumerate(edits):
        if i in shown:
            if i != last + 1:
                yield DiffLine("@", f"line {old} → line {new}")
            yield DiffLine(line.mark, line.text[:_LONGEST_LINE])
            last = i
        old += line.mark != "+"
        new += line.mark != "-"
