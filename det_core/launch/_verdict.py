"""Why workers failed, told past the backend's own launcher, which knows their exit codes at best."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from det_core.launch._processes import has_ended

DIRECTORY = "DET_VERDICT_DIR"
"""Environment variable of workers: where those that fail leave a note."""
REASON = "det: the workers failed: "
"""Begins the line on stderr that tells the verdict."""

_CONSEQUENCE = re.compile(r"PeerLost|RankFailed|connection (was )?(reset|closed|refused)|broken pipe", re.IGNORECASE)
"""How those fail whose peer has failed."""
_DIED = "the process died without a word: it crashed, or was killed, for example for want of memory (see `dmesg`)"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How one worker failed.

    Args:
        rank: None if it did not get to know.
        code: what it exits with.
        error: its exception in one line.
        time: of the host's monotonic clock, in ns.
    """

    rank: int | None
    code: int
    error: str
    time: int

    def __str__(self) -> str:
        return self.error if self.rank is None else f"rank {self.rank}: {self.error}"


def leave(rank: int | None, code: int, error: str) -> None:
    """Note that this process fails; nothing where nobody would read it."""
    if directory := os.environ.get(DIRECTORY):
        with suppress(FileNotFoundError):  # a cleaner of temporary files removed it; the exit code has to suffice
            _write(Path(directory), os.getpid(), rank, code, error)


@contextmanager
def present(rank: int) -> Iterator[None]:
    """If this process is gone before the end of the block, that is a failure, too."""
    directory = os.environ.get(DIRECTORY)
    if directory is None:
        yield
        return
    mark = Path(directory, f"{os.getpid()}.present")
    mark.write_text(str(rank))
    try:
        yield
    finally:
        mark.unlink(missing_ok=True)


def look(directory: Path) -> bool:
    """Whether a worker has failed. Those that are gone without a word get a note."""
    for mark in directory.glob("*.present"):
        if has_ended(int(mark.stem)):
            with suppress(FileNotFoundError, ValueError):  # removed since, or not written yet
                _write(directory, int(mark.stem), int(mark.read_text()), 1, _DIED)
                mark.unlink()
    return any(directory.glob("*.json"))


def read(directory: Path) -> Verdict | None:
    """The note of the worker that failed first, except because another did; None if there is no note."""
    verdicts = [Verdict(**json.loads(path.read_text())) for path in directory.glob("*.json")]
    return min(verdicts, key=lambda one: (bool(_CONSEQUENCE.search(one.error)), one.time), default=None)


def _write(directory: Path, pid: int, rank: int | None, code: int, error: str) -> None:
    line = "; ".join(filter(None, map(str.strip, error.splitlines())))
    verdict = Verdict(rank=rank, code=code, error=line, time=time.monotonic_ns())
    partial = directory / f"{pid}"
    partial.write_text(json.dumps(asdict(verdict)))
    partial.rename(partial.with_suffix(".json"))
