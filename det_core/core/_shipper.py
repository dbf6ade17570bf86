"""Writes to the record behind the training loop's back: in order, in batches, never dropped."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

from det_core import events
from det_core.errors import TrackingError
from det_core.interfaces.tracking import MetricsReport, TrackingStore
from det_core.plugins import emit

_Write = Callable[[], None]
_Item = MetricsReport | str | threading.Event | None
"""A report; the key of a new latest value; somebody who waits; the end."""

_LINGER = 0.2
"""Seconds that anything may wait for more, so that one transaction carries all reports."""
_CAPACITY = 10_000
"""Items in the queue before a reporter has to wait."""
_BATCH = 1_000
_PATIENCE = 180.0
"""Seconds to wait for the thread; the store's own limit on a locked database is shorter."""


class Shipper:
    """A queue and the thread that empties it. An error there is raised by the next call here."""

    def __init__(self, store: TrackingStore) -> None:
        self._store = store
        self._queue: queue.Queue[_Item] = queue.Queue(_CAPACITY)
        self._latest: dict[str, _Write] = {}
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="det-shipper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, report: MetricsReport) -> None:
        """Queue a report."""
        self._put(report)

    def submit_latest(self, key: str, write: _Write) -> None:
        """Queue a write that replaces one of the same key which is still waiting: only the latest value counts."""
        self._latest[key] = write
        self._put(key)

    def flush(self) -> None:
        """Wait until everything submitted so far is committed."""
        done = threading.Event()
        self._put(done)
        if not done.wait(_PATIENCE):
            raise TrackingError(f"metrics were not written within {_PATIENCE:.0f} s; is the database reachable?")
        self._raise_error()

    def close(self) -> None:
        """Write what is left and end the thread."""
        if self._thread.ident is None:
            return
        self._enqueue(None)
        self._thread.join(_PATIENCE)
        self._raise_error()
        if self._thread.is_alive():
            raise TrackingError(f"metrics were not written within {_PATIENCE:.0f} s; is the database reachable?")

    def _put(self, item: _Item) -> None:
        if self._thread.ident is None:
            raise RuntimeError("the core context is not entered; use it as: with core.init() as core_context")
        self._raise_error()
        self._enqueue(item)

    def _enqueue(self, item: _Item) -> None:
        try:
            self._queue.put(item, timeout=_PATIENCE)
        except queue.Full:
            raise TrackingError(f"the queue of metrics stayed full for {_PATIENCE:.0f} s") from None

    def _raise_error(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _run(self) -> None:
        batch: list[MetricsReport] = []
        deadline: float | None = None
        while True:
            try:
                item = self._queue.get(timeout=None if deadline is None else max(deadline - time.monotonic(), 0))
            except queue.Empty:
                item = ""
            if isinstance(item, MetricsReport):
                batch.append(item)
            if item and isinstance(item, (MetricsReport, str)) and len(batch) < _BATCH:
                deadline = deadline or time.monotonic() + _LINGER
                continue
            deadline = None
            self._write(batch)
            batch = []
            if isinstance(item, threading.Event):
                item.set()
            if item is None:
                return

    def _write(self, reports: list[MetricsReport]) -> None:
        if reports and self._guarded(lambda: self._store.report_metrics(reports)):
            for report in reports:
                emit(
                    events.MetricsReported(
                        trial_id=report.trial_id,
                        run_id=report.run_id,
                        group=report.group,
                        steps_completed=report.steps_completed,
                        metrics=report.metrics,
                    )
                )
        for key in list(self._latest):  # after the reports: progress must not run ahead of the steps it is about
            self._guarded(self._latest.pop(key))

    def _guarded(self, write: _Write) -> bool:
        try:
            write()
        except Exception as error:  # noqa: BLE001  (raised again in the thread that reports next)
            self._error = self._error or error
            return False
        return True
