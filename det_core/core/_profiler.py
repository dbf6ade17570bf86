"""Profiler of the host during training."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from datetime import datetime, timezone
from numbers import Real
from typing import Any

from det_core.interfaces.records import Run, SystemMetrics
from det_core.interfaces.tracking import TrackingStore
from det_core.owner_process import OwnerProcess

_log = logging.getLogger("det.core")

_MIN_INTERVAL = 0.1
_STOP_TIMEOUT = 5.0
"""Seconds to wait for a sample or a report in progress."""


class ProfilerContext:
    """Profiler that records samples of CPU, memory, disks, network and GPUs of this host in the tracking store.

    It is off by default. On each host only the worker of local rank 0 samples. Calls on other workers do nothing.
    """

    def __init__(self, store: TrackingStore, run: Run, agent_id: str, *, local_rank: int) -> None:
        self._store = store
        self._run = run
        self._agent_id = agent_id
        self._is_sampler = local_rank == 0
        self._owner = OwnerProcess("the profiler")
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def on(self, sampling_interval: float = 1, samples_per_report: int = 10) -> None:
        """Start sampling in the background. Do nothing if the profiler is on.

        An error during sampling is logged and stops the profiler, but not the training.

        Args:
            sampling_interval: seconds between two samples, >= 0.1.
            samples_per_report: number of samples whose mean is recorded, >= 1.

        Raises:
            ValueError: an argument is not as described.
            RuntimeError: this is a forked child.
        """
        self._owner.require()
        if not _is(Real, sampling_interval) or not sampling_interval >= _MIN_INTERVAL:
            raise ValueError(f"sampling_interval is {sampling_interval!r}; expected seconds, at least {_MIN_INTERVAL}")
        if not _is(int, samples_per_report) or samples_per_report < 1:
            raise ValueError(f"samples_per_report is {samples_per_report!r}; expected an integer of at least 1")
        if not self._is_sampler or (self._thread and self._thread.is_alive()):
            return
        self._stop = threading.Event()
        arguments = (self._stop, sampling_interval, samples_per_report)
        self._thread = threading.Thread(target=self._run_until, args=arguments, name="det-profiler", daemon=True)
        self._thread.start()

    def off(self) -> None:
        """Record the remaining samples and stop sampling. Do nothing if the profiler is off.

        Raises:
            RuntimeError: this is a forked child.
        """
        self._owner.require()
        self._stop.set()
        if self._thread:
            self._thread.join(_STOP_TIMEOUT)
            if self._thread.is_alive():
                _log.warning("the profiler did not stop within %g s; its last samples may be missing", _STOP_TIMEOUT)
            self._thread = None

    def _run_until(self, stop: threading.Event, interval: float, samples_per_report: int) -> None:
        from det_core.core._host_sampler import HostSampler, mean_sample  # imported only if the profiler is used

        try:
            sampler = HostSampler()
            while not stop.is_set():
                samples: list[Mapping[str, Any]] = []
                while len(samples) < samples_per_report and not stop.wait(interval):
                    samples.append(sampler.sample())
                if samples:
                    self._record(mean_sample(samples))
        except Exception as error:  # noqa: BLE001  (logged for the user, because training continues without a profile)
            _log.warning("the profiler stopped: %s: %s", type(error).__name__, error)

    def _record(self, sample: Mapping[str, Any]) -> None:
        now = datetime.now(timezone.utc)
        self._store.report_system_metrics(
            [
                SystemMetrics(
                    trial_id=self._run.trial_id,
                    run_id=self._run.run_id,
                    group=group,
                    metrics={self._agent_id: metrics},
                    time=now,
                )
                for group, metrics in sample.items()
            ]
        )


def _is(kind: type, value: object) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)
