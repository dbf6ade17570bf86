"""Failure notes that workers leave in files, because backend launchers report at best their exit codes."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from det_core.owner_process import OwnerProcess

NOTES_VARIABLE = "DET_FAILURE_NOTES_DIR"
"""Environment variable of workers with the directory for failure notes."""
KNOWN_FAILURE = "DET_KNOWN_FAILURE"
"""Environment variable of workers with the `failure_fingerprint` of the last failure from the same checkpoint."""
FAILURE_PREFIX = "det: the workers failed: "
"""Beginning of the line on stderr that reports why the workers failed."""

PLACE = re.compile(r" \(batch \d+, .+:\d+\)$")
"""Batch and line of code at the end of the description of a failure."""
_VARIES = re.compile(r"0x[0-9a-f]+|/det-context-\w+|^rank \d+: ", re.IGNORECASE)
"""Memory addresses, directories of the code, and ranks, which differ between runs."""
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


def describe_failure(error: BaseException, batch: int | None, directory: Path) -> str:
    """Return an error in one line, with the batch and the line of code that raised it, if the batch is known.

    Args:
        error: the error.
        batch: number of the batch, from 0.
        directory: directory of the user's code, whose innermost line counts. Without any, it is the innermost of all.
    """
    description = _join_lines(f"{type(error).__name__}: {error}")
    raised = traceback.extract_tb(error.__traceback__)
    if batch is None or not raised:
        return description
    own = [frame for frame in raised if Path(frame.filename).is_relative_to(directory)]
    place = (own or raised)[-1]
    return f"{description} (batch {batch}, {Path(place.filename).name}:{place.lineno})"


def without_varying_parts(description: str) -> str:
    """Return the description of a failure without the parts that differ between runs."""
    return _VARIES.sub("", description)


def failure_fingerprint(description: str) -> str:
    """Return a hash that is equal for descriptions that differ in varying parts only."""
    return hashlib.sha256(without_varying_parts(description).encode()).hexdigest()


def is_known_failure(description: str) -> bool:
    """Return whether the last run from the same checkpoint failed in the same way as this process."""
    return os.environ.get(KNOWN_FAILURE) == failure_fingerprint(description)


def write_failure_note(rank: int | None, code: int, error: str) -> None:
    """Write a failure note for this process. Without a directory for notes, do nothing."""
    if directory := os.environ.get(NOTES_VARIABLE):
        # A cleaner may have removed the directory, or its disk is full. Then exit code and output have to suffice.
        with suppress(OSError):
            _write(Path(directory), os.getpid(), rank, code, error)


@contextmanager
def mark_worker_present(rank: int) -> Iterator[None]:
    """Mark this process as present while the block runs, so that its death there counts as a failure."""
    directory = os.environ.get(NOTES_VARIABLE)
    if directory is None:
        yield
        return
    mark, owner = Path(directory, f"{os.getpid()}.present"), OwnerProcess()
    mark.write_text(str(rank), encoding="utf-8")
    try:
        yield
    finally:
        if owner.is_here:
            mark.unlink(missing_ok=True)


def poll_worker_failures(directory: Path) -> bool:
    """Return whether a worker has failed. Write the failure notes of workers that died without one."""
    from det_core.processes import process_has_ended  # workers do not need it

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
    failure = WorkerFailure(rank=rank, code=code, error=_join_lines(error), time=time.monotonic_ns())
    partial = directory / f"{pid}"
    partial.write_text(json.dumps(asdict(failure)), encoding="utf-8")
    partial.rename(partial.with_suffix(".json"))


def _join_lines(error: str) -> str:
    return "; ".join(filter(None, map(str.strip, error.splitlines())))
