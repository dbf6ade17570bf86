"""Descriptions of what ended a worker, which it prints, or leaves in files, because launchers of backends drop them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from det_core.disk_errors import explain_disk_error
from det_core.owner_process import OwnerProcess

NOTES_VARIABLE = "DET_FAILURE_NOTES_DIR"
"""Environment variable of workers with the directory for failure notes."""
KNOWN_FAILURE = "DET_KNOWN_FAILURE"
"""Environment variable of workers with the `failure_fingerprints` of the last failure from the same checkpoint."""
FAILURE_PREFIX = "det: the workers failed: "
"""Beginning of the line on stderr that reports why the workers failed."""

PLACE = re.compile(r" \(batch (?P<batch>\d+), (?P<file>((?! \(batch ).)+):(?P<line>\d+)\)$")
"""Batch and line of code at the end of the description of a failure. Its error may name batches, too."""
_VARIES = re.compile(r"0x[0-9a-f]+|/det-context-\w+|^rank \d+: ", re.IGNORECASE)
"""Memory addresses, directories of the code, and ranks, which differ between runs."""
_CONSEQUENCE = re.compile(r"PeerLost|RankFailed|connection (was )?(reset|closed|refused)|broken pipe", re.IGNORECASE)
"""Errors of workers that fail because another worker has failed."""
DIED = (
    "the process died without an error message; it crashed or was killed, for example for lack of memory (see `dmesg`)"
)
"""Error of a worker that died."""

_Failure = TypeVar("_Failure", "WorkerFailure", str)


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


def failure_fingerprints(description: str) -> str:
    """Return hashes of a description and, for ranks that do not know the batch, of its part before the place.

    Descriptions that differ in varying parts only have the same hashes.
    """
    return f"{_fingerprint(description)} {_fingerprint(_without_place(description))}"


def _fingerprint(description: str) -> str:
    return hashlib.sha256(without_varying_parts(description).encode()).hexdigest()


def choose_cause(failures: Iterable[_Failure]) -> _Failure | None:
    """Return the first failure that does not follow from that of another worker, or None if there are none.

    Of equal ones, it is one that names the batch, which only the chief of a script may know.

    Args:
        failures: failures or their descriptions, oldest first.
    """
    causes = sorted(failures, key=lambda one: bool(_CONSEQUENCE.search(str(one))))
    same = [one for one in causes if _without_place(str(one)) == _without_place(str(causes[0]))]
    return next((one for one in same if PLACE.search(str(one))), causes[0] if causes else None)


def _without_place(description: str) -> str:
    return without_varying_parts(PLACE.sub("", description))


def report_uncaught_error(rank: int | None, batch: int | None) -> None:
    """Make this process describe the exception that ends it to the runner, and show no traceback that the log has.

    Args:
        rank: rank of this worker, or None if it is the only one or does not know it.
        batch: number of batches trained, or None if it is not known.
    """
    hook = sys.excepthook
    sys.excepthook = _ErrorReport(hook.show if isinstance(hook, _ErrorReport) else hook, rank, batch)


@dataclass(frozen=True)
class _ErrorReport:
    """Hook for an exception that ends this process."""

    show: Callable[[type[BaseException], BaseException, TracebackType | None], Any]
    """Function that shows a traceback."""
    rank: int | None
    batch: int | None

    def __call__(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        with _without_termination():
            place = self._describe(error) if isinstance(error, Exception) else None
            if place:
                print(f"det: {place}", file=sys.stderr)  # noqa: T201
            else:
                self.show(kind, error, trace)

    def _describe(self, error: Exception) -> str | None:
        """Describe the error to the runner, and return where the log has its traceback."""
        disk_error = explain_disk_error(error)
        failure = describe_failure(disk_error or error, None if disk_error else self.batch, _working_directory())
        write_failure_note(self.rank, 1, failure)
        if NOTES_VARIABLE not in os.environ:  # else the process that started the workers prints the notes
            print(f"{FAILURE_PREFIX}{failure}", file=sys.stderr)  # noqa: T201
        return _place_of_traceback(failure)


@contextmanager
def _without_termination() -> Iterator[None]:
    """Ignore SIGTERM, because a worker that failed later may have ended, and launchers then terminate the others."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        if handler is not None:  # else it is not one of Python
            signal.signal(signal.SIGTERM, handler)


def _working_directory() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path()  # which contains no code


def _place_of_traceback(description: str) -> str | None:
    """Return where the log has the traceback of a failure, or None if this process is the first to show it."""
    if _fingerprint(description) in os.environ.get(KNOWN_FAILURE, "").split():
        return "the run before failed like this, and its log has the traceback"
    if directory := os.environ.get(NOTES_VARIABLE):
        try:
            Path(directory, f"{_fingerprint(_without_place(description))}.shown").touch(exist_ok=False)
        except FileExistsError:
            return "the same error as that of another rank, which shows the traceback"
        except OSError:  # as for notes
            pass
    return None


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
    """Return the note of the worker that failed first, as `choose_cause`, or None if there is no note."""
    failures = [WorkerFailure(**json.loads(path.read_text(encoding="utf-8"))) for path in directory.glob("*.json")]
    return choose_cause(sorted(failures, key=lambda one: one.time))


def _write(directory: Path, pid: int, rank: int | None, code: int, error: str) -> None:
    failure = WorkerFailure(rank=rank, code=code, error=_join_lines(error), time=time.monotonic_ns())
    partial = directory / f"{pid}"
    partial.write_text(json.dumps(asdict(failure)), encoding="utf-8")
    partial.rename(partial.with_suffix(".json"))


def _join_lines(error: str) -> str:
    return "; ".join(filter(None, map(str.strip, error.splitlines())))
