"""Failure notes that workers leave in files, because backend launchers report at best their exit codes."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from det_core.processes import process_has_ended

NOTES_VARIABLE = "DET_FAILURE_NOTES_DIR"
"""Environment variable of workers with the directory for failure notes."""
FAILURE_PREFIX = "det: the workers failed: "
"""Beginning of the line on stderr that reports why the workers failed."""

_CONSEQUENCE = re.compile(r"PeerLost|RankFailed|connection (was )?(reset|closed|refused)|broken pipe", re.IGNORECASE)
"""Errors of workers that fail because another worker has failed."""
DIED = (
    "the process died without an error message; it crashed or was killed, for example for lack of memory (see `dmesg`)"
)
"""Error of a worker that died."""


@dataclass(frozen=True, kw_only=True)
class WorkerFailure:
    """Failure of one worker.

    Args:
        rank: rank of the worker, or None if the worker did not know it yet.
        code: exit code of the worker.
        error: its exception in one line.
        time: time of the failure on the host's monotonic clock, in nanoseconds.
    """

    rank: int | None
    code: int
    error: str
    time: int

    def __str__(self) -> str:
        return self.error if self.rank is None else f"rank {self.rank}: {self.error}"


def write_failure_note(rank: int | None, code: int, error: str) -> None:
    """Write a failure note for this process. Without a directory for notes, do nothing."""
    if directory := os.environ.get(NOTES_VARIABLE):
        with suppress(FileNotFoundError):  # removed by a cleaner of temporary files, so the exit code has to suffice
            _write(Path(directory), os.getpid(), rank, code, error)


@contextmanager
def mark_worker_present(rank: int) -> Iterator[None]:
    """Mark this process as present while the block runs, so that its death there counts as a failure."""
    directory = os.environ.get(NOTES_VARIABLE)
    if directory is None:
        yield
        return
    mark = Path(directory, f"{os.getpid()}.present")
    mark.write_text(str(rank), encoding="utf-8")
    try:
        yield
    finally:
        mark.unlink(missing_ok=True)


def poll_worker_failures(directory: Path) -> bool:
    """Return whether a worker has failed. Write the failure notes of workers that died without one."""
    for mark in directory.glob("*.present"):
        if process_has_ended(int(mark.stem)):
            with suppress(FileNotFoundError, ValueError):  # removed since, or not written yet
                _write(directory, int(mark.stem), int(mark.read_text(encoding="utf-8")), 1, DIED)
                mark.unlink()
    return any(directory.glob("*.json"))


def read_first_failure(directory: Path) -> WorkerFailure | None:
    """Return the note of the worker that failed first, or None if there is no note.

    Failures that follow from the failure of another worker count only if there are no others.
    """
    failures = [WorkerFailure(**json.loads(path.read_text(encoding="utf-8"))) for path in directory.glob("*.json")]
    return min(failures, key=lambda one: (bool(_CONSEQUENCE.search(one.error)), one.time), default=None)


def _write(directory: Path, pid: int, rank: int | None, code: int, error: str) -> None:
    line = "; ".join(filter(None, map(str.strip, error.splitlines())))
    failure = WorkerFailure(rank=rank, code=code, error=line, time=time.monotonic_ns())
    partial = directory / f"{pid}"
    partial.write_text(json.dumps(asdict(failure)), encoding="utf-8")
    partial.rename(partial.with_suffix(".json"))
