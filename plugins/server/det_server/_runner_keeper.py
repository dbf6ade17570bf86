"""Background thread that keeps the experiments that were submitted to a server running."""

from __future__ import annotations

import logging
import re
import threading
from pathlib import Path
from time import monotonic

from det_core.errors import DetError, RecordNotFound
from det_core.home import private_directory
from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking.control import lacks_runner

_log = logging.getLogger("det.server")

_EVERY_SECONDS = 30.0
_STOP_SECONDS = 5.0
"""Maximum time to wait for the start of a runner when the server stops. The thread ends with the process."""
_LONGEST_PAUSE = 30 * 60.0
"""Maximum time between two attempts to start a runner that fails."""


class RunnerKeeper:
    """Starter of runners, which run experiments in processes of their own and outlive the server.

    A file notes each experiment before its runner starts. Servers with another ``DET_HOME`` do not see it, because they
    do not have the secrets of the experiment.

    Args:
        store: the tracking store.
        every: seconds between two checks.
    """

    def __init__(self, store: TrackingStore, *, every: float = _EVERY_SECONDS) -> None:
        self._store = store
        self._every = every
        self._stopped = threading.Event()
        self._failures: dict[int, tuple[float, float]] = {}
        self._starting = set[int]()
        """Experiments that somebody is starting, which no check starts as well."""
        self._thread = threading.Thread(target=self._run, name="det-runner-keeper", daemon=True)

    def start(self) -> None:
        """Begin to check the noted experiments."""
        self._thread.start()

    def stop(self) -> None:
        """Stop checking. Runners continue."""
        self._stopped.set()
        self._thread.join(_STOP_SECONDS)

    def keep(self, experiment_id: int) -> None:
        """Note an experiment, so that it is started again until it ends or is paused."""
        self._note(experiment_id).touch(mode=0o600)

    def start_runner(self, experiment_id: int, *, from_beginning: bool = False) -> None:
        """Note an experiment and start its runner.

        Args:
            experiment_id: the experiment.
            from_beginning: whether trials start without their checkpoints.

        Raises:
            DetError: it cannot be run, or has a runner.
        """
        from det_core.runner import ExperimentRunner, start_detached  # takes half a second

        ExperimentRunner(self._store, experiment_id)  # raises an error if no runner can run it
        self._starting.add(experiment_id)
        try:
            self.keep(experiment_id)
            start_detached(self._store, experiment_id, from_beginning=from_beginning)
        finally:
            self._starting.discard(experiment_id)
        self._failures.pop(experiment_id, None)

    def check(self) -> None:
        """Start the runners that are missing, and forget experiments that have ended. An error ends no other check."""
        for experiment_id in self._noted():
            if self._stopped.is_set():
                return
            try:
                self._check_experiment(experiment_id)
            except DetError as error:
                _log.warning("experiment %d was not started: %s", experiment_id, error)
                self._postpone(experiment_id)
            except Exception:  # noqa: BLE001  (it concerns one experiment, and others come after it)
                _log.exception("the check of experiment %d failed", experiment_id)
                self._postpone(experiment_id)

    def _check_experiment(self, experiment_id: int) -> None:
        try:
            experiment = self._store.experiment(experiment_id)
        except RecordNotFound:
            self._note(experiment_id).unlink(missing_ok=True)
            return
        if experiment.state.final:
            self._note(experiment_id).unlink(missing_ok=True)
            self._failures.pop(experiment_id, None)
            return
        holder = self._store.lease_holder(experiment_id)
        waits = experiment.state is State.QUEUED and holder is None
        if (waits or lacks_runner(experiment, holder)) and self._is_due(experiment_id):
            from det_core.runner import start_detached

            _log.info("starting the runner of experiment %d", experiment_id)
            start_detached(self._store, experiment_id)
            self._postpone(experiment_id)  # in case it ends at once

    def _is_due(self, experiment_id: int) -> bool:
        later, _ = self._failures.get(experiment_id, (0.0, 0.0))
        return monotonic() >= later and experiment_id not in self._starting

    def _postpone(self, experiment_id: int) -> None:
        """Double the time before the next attempt to start the experiment."""
        _, pause = self._failures.get(experiment_id, (0.0, self._every / 2))
        pause = min(2 * pause, _LONGEST_PAUSE)
        self._failures[experiment_id] = monotonic() + pause, pause

    def _noted(self) -> list[int]:
        pattern = re.compile(rf"experiment-([0-9]{{1,18}})-of-{self._store.cluster_id}")
        found = (pattern.fullmatch(path.name) for path in private_directory("server").iterdir())
        return sorted(int(match[1]) for match in found if match)

    def _note(self, experiment_id: int) -> Path:
        return private_directory("server") / f"experiment-{experiment_id}-of-{self._store.cluster_id}"

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self.check()
            except Exception:  # noqa: BLE001  (the next check may succeed)
                _log.exception("the check of running experiments failed")
            self._stopped.wait(self._every)
