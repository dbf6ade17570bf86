"""Lease that admits at most one living runner per experiment. Scripts that run by themselves hold one, too."""

from __future__ import annotations

import os
import re
import threading
import uuid
from contextlib import suppress

from typing_extensions import Self

from det_core.errors import ExperimentBusy, RecordNotFound, StoreBusy
from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.processes import pid_namespace_name, process_has_ended, process_start_time

_SECONDS = 30.0
"""Seconds after which a lease expires unless it is renewed."""
_RENEW_EVERY = 5.0
"""Seconds between two renewals."""
_HOLDER = re.compile(r"(.+):([0-9]{1,9}):([0-9]*):[^:\s]+")
"""Place, process id, start and mark of a holder that is a `Lease`. Users may record any other text."""


class Lease:
    """Exclusive hold on an experiment, renewed in the background from construction to `release`.

    A holder that died on this host is replaced at once. One on another host is replaced when its lease has expired.

    Args:
        store: the tracking store of the experiment.
        experiment_id: the experiment to hold.
        state: new state of the experiment, or None to keep its state.

    Raises:
        ExperimentBusy: another living runner holds the experiment.
    """

    def __init__(self, store: TrackingStore, experiment_id: int, state: State | None = None) -> None:
        self.holder = f"{pid_namespace_name()}:{os.getpid()}:{process_start_time(os.getpid())}:{uuid.uuid4().hex[:8]}"
        """Name of this holder in the tracking store, unique to this object."""
        self._store = store
        self._experiment_id = experiment_id
        self._error: Exception | None = None
        self._is_held = False
        self._released = threading.Event()
        release_dead_holder(store, experiment_id)
        self._thread = threading.Thread(target=self._renew, name="det-lease", daemon=True)
        self._thread.start()  # first, because there may be no free thread
        try:
            self._acquire(state)
            self._is_held = True
        except BaseException:
            self._released.set()
            raise

    def check(self) -> None:
        """Raise the error that prevented renewal of the lease.

        Raises:
            StaleRun: another runner has taken over the lease.
            StoreBusy: the database was unavailable for too long.
        """
        if self._error is not None:
            raise self._error

    def renew(self) -> None:
        """Renew the lease now.

        Raises:
            StaleRun: another runner has taken over the lease.
            StoreBusy: the database was unavailable for too long.
        """
        self._store.renew_lease(self._experiment_id, self.holder, seconds=_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.release()

    def release(self) -> None:
        """Release the lease. It expires by itself if the database is unavailable."""
        self._released.set()
        self._thread.join()
        with suppress(StoreBusy, RecordNotFound):  # the holder of the lease may have deleted the experiment
            self._store.release_lease(self._experiment_id, self.holder)

    def _renew(self) -> None:
        while not self._released.wait(_RENEW_EVERY):
            try:
                if self._is_held:
                    self.renew()
            except Exception as error:  # noqa: BLE001  (raised again by check)
                self._error = error
                return

    def _acquire(self, state: State | None) -> None:
        try:
            self._store.acquire_lease(self._experiment_id, self.holder, seconds=_SECONDS, state=state)
        except ExperimentBusy as error:
            raise ExperimentBusy(
                f"{error}; watch it with: det experiment logs {self._experiment_id} -f, "
                f"stop it with: det experiment pause {self._experiment_id}"
            ) from error


def release_dead_holder(store: TrackingStore, experiment_id: int) -> str | None:
    """Release the lease of a holder that died on this host, and return one that may be alive, if there is one."""
    holder = store.lease_holder(experiment_id)
    if holder is None or not is_dead(holder):
        return holder
    store.release_lease(experiment_id, holder)
    return None


def is_dead(holder: str) -> bool:
    """Return whether the holder of a lease is certainly gone.

    A process that is not visible from here counts as alive, and so does a holder that is no `Lease`.
    """
    match = _HOLDER.fullmatch(holder)
    return match is not None and match[1] == pid_namespace_name() and process_has_ended(int(match[2]), match[3])
