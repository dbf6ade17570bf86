"""Background writer for metric reports: ordered, batched, lossless."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, TimeoutError

from det_core.errors import CallTooLarge, MetricsConflict, StoreBusy, TrackingError
from det_core.interfaces.records import MetricsReport
from det_core.owner_process import OwnerProcess

_log = logging.getLogger("det.core")

_Write = Callable[[], None]

_LINGER = 0.2
"""Seconds that a report may wait for further reports, so that one transaction writes all of them."""
_CAPACITY = 10_000
"""Maximum number of reports in the queue. `ReportWriter.submit` waits while the queue is full."""
_BATCH = 1_000
_WRITE_TIMEOUT = 180.0
"""Seconds to wait for the thread. The store's own limit on a locked database is shorter."""
_FAULTY = (CallTooLarge, MetricsConflict, TypeError, ValueError)
"""Errors that concern a single report. The rest of its batch is retried without it."""


class ReportWriter:
    """Queue of writes with a background thread, which starts at the first use.

    An error in the thread is raised by the next call to this object, except that a report is too large. That is a
    warning, because metrics never end a training because of their size.

    Args:
        write: writes a batch of reports, all or none.
        written: function called in the thread with the reports that were written.
    """

    def __init__(
        self, write: Callable[[Sequence[MetricsReport]], None], written: Callable[[Sequence[MetricsReport]], None]
    ) -> None:
        self._write = write
        self._written = written
        self._queue: deque[MetricsReport] = deque()
        self._latest: dict[str, _Write] = {}
        self._waiting: deque[Future[None]] = deque()
        self._error: Exception | None = None
        self._open = False
        self._has_waited = False
        self._owner = OwnerProcess("the core context")
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._something = threading.Event()
        """Set when there is work for the thread."""
        self._urgent = threading.Event()
        """Set when the work must be done immediately."""
        self._room = threading.Event()
        """Set when the thread has taken reports from the queue."""

    def open(self) -> None:
        """Start to accept calls."""
        self._open = True

    def submit(self, report: MetricsReport) -> None:
        """Add a report to the queue. Wait while the queue is full."""
        self._check()
        waiting = len(self._queue)
        if waiting >= _CAPACITY:
            self._wait_for_room()
        self._queue.append(report)
        if waiting >= _BATCH:
            self._urgent.set()
        if not self._something.is_set():
            self._wake()

    def submit_latest(self, key: str, write: _Write) -> None:
        """Add a write of which only the latest counts. It replaces a waiting write with the same key.

        Args:
            key: identifies the value that is written.
            write: function that writes the value. The thread calls it.
        """
        self._check()
        self._latest[key] = write
        self._wake()

    def flush(self) -> None:
        """Wait until everything submitted so far is committed.

        Raises:
            RuntimeError: the core context is not entered.
            TrackingError: a report could not be written, or not in time.
        """
        self._check()
        if self._thread is None:  # nothing was submitted yet
            return
        done: Future[None] = Future()
        self._waiting.append(done)
        self._urgent.set()
        self._wake()
        try:
            done.result(_WRITE_TIMEOUT)
        except TimeoutError:
            raise _too_slow() from None
        except StoreBusy as error:
            if self._error is error:
                self._error = None
            raise
        self._raise_error()

    def close(self) -> None:
        """Write everything that is waiting and end the thread. Later calls raise RuntimeError."""
        self._open = False
        if self._thread is not None:
            self._urgent.set()
            self._something.set()
            self._thread.join(_WRITE_TIMEOUT)
        self._raise_error()
        if self._thread is not None and self._thread.is_alive():
            raise _too_slow()

    def _check(self) -> None:
        self._owner.require()
        if not self._open:
            raise RuntimeError("the core context is not entered; use it as: with core.init() as core_context")
        if self._error is not None:
            self._raise_error()

    def _raise_error(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _wake(self) -> None:
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="det-report-writer", daemon=True)
                    self._thread.start()
        self._something.set()

    def _wait_for_room(self) -> None:
        if not self._has_waited:
            self._has_waited = True
            _log.warning(
                "%d reports wait for the tracking store, so reporting waits, too, and slows down training; report less "
                "often",
                _CAPACITY,
            )
        while len(self._queue) >= _CAPACITY:
            self._raise_error()
            self._room.clear()
            if len(self._queue) >= _CAPACITY and not self._room.wait(_WRITE_TIMEOUT):
                raise _too_slow()

    def _run(self) -> None:
        while self._open or self._something.is_set():
            self._something.wait()
            self._urgent.wait(_LINGER)
            self._something.clear()
            self._urgent.clear()
            self._ship()

    def _ship(self) -> None:
        # The queue is read last, so every report that was submitted before a flush or a latest value is in it.
        # Recorded progress is therefore never ahead of its reports, and a flush covers all reports before it.
        waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
        latest = [self._latest.pop(key) for key in list(self._latest)]
        outage: StoreBusy | None = None
        for _ in range(0, len(self._queue), _BATCH):
            batch = [self._queue.popleft() for _ in range(min(_BATCH, len(self._queue)))]
            try:
                self._ship_reports(batch)
            except StoreBusy as error:
                self._queue.extendleft(reversed(batch))  # retried by the next cycle, at the latest by `close`
                self._remember(error)
                outage = error
                break
            finally:
                self._room.set()
        for write in latest:
            self._attempt(write)
        for done in waiting:
            if outage is None:
                done.set_result(None)
            else:
                done.set_exception(outage)

    def _ship_reports(self, reports: list[MetricsReport]) -> None:
        try:
            self._write(reports)
        except StoreBusy:
            raise
        except Exception as error:  # noqa: BLE001  (raised again by the next call to this object)
            if len(reports) == 1 and isinstance(error, CallTooLarge):
                _log.warning("a report is left out: %s", error)
                return
            if len(reports) == 1 or not isinstance(error, _FAULTY):
                self._remember(error)
                return
            middle = len(reports) // 2
            self._ship_reports(reports[:middle])
            self._ship_reports(reports[middle:])
        else:
            self._attempt(lambda: self._written(reports))

    def _attempt(self, write: _Write) -> None:
        try:
            write()
        except Exception as error:  # noqa: BLE001  (as above)
            self._remember(error)

    def _remember(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
        else:
            _log.error("another error occurred before an earlier one was raised: %s", error)


def _too_slow() -> TrackingError:
    return TrackingError(f"metrics were not written within {_WRITE_TIMEOUT:g} s; is the database reachable?")
