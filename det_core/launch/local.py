"""Local launcher, whose only node is this machine and whose agent runs in the process of the runner."""

from __future__ import annotations

import errno
import fcntl
import math
import os
import time
from dataclasses import replace
from pathlib import Path

from det_core.config import Block, Positive
from det_core.errors import LaunchDelayed, LaunchError
from det_core.home import private_directory
from det_core.interfaces.launcher import Allocation, Launcher, LaunchRequest
from det_core.launch._agent import Agent
from det_core.launch._worker_environment.thread_limits import thread_limit_variables
from det_core.launch.gpu_slots import count_gpus, gpu_variables, local_slot_names
from det_core.launch.machine_slots import SlotReservation, SlotUser, reserve_slots
from det_core.launch.processes import kill_lock_holders

_GRACE = 10.0
"""Seconds that processes of an earlier run have to end by themselves, as they do when their runner is gone."""
_LOCK_SECONDS = 15.0
"""Seconds to wait for the end of processes of an earlier run."""
_POLL_EVERY = 0.2
"""Seconds between two polls of a launch that waits for slots."""
_EXPLAIN_AFTER = 1.0
"""Seconds after which the trial's log says what it waits for. Trials that start at once may need two polls."""
_TEMPORARY = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT)
"""Error numbers of temporarily exhausted resources."""


class LocalConfig(Block):
    """Options of the local launcher."""

    slots: Positive = 1
    """Number of workers that this machine can run if it has no GPU."""


class LocalLauncher(Launcher):
    """Launcher that starts workers as children of the calling process."""

    def __init__(self, config: LocalConfig) -> None:
        self._names = local_slot_names(config.slots)
        self.slots: int = len(self._names)

    def start(self, request: LaunchRequest) -> Allocation:
        reservation = self._reserve(request)
        try:
            lock = _lock(private_directory("locks") / f"{request.name}.lock")  # first, as orphans may hold the slots
            try:
                slots = _await_slots(reservation, request)
                locks = [lock, *reservation.descriptors]
                return Agent(self._described(request, slots), locks=locks, closed=reservation.close)
            finally:
                os.close(lock)  # the processes have inherited it
        except OSError as error:
            reservation.close()
            kind = LaunchDelayed if error.errno in _TEMPORARY else LaunchError
            raise kind(f"cannot start {request.argv[0]!r} in {request.cwd}: {error}") from error
        except BaseException:
            reservation.close()
            raise

    def _reserve(self, request: LaunchRequest) -> SlotReservation:
        trial = request.info.get("trial.json", {})
        user = SlotUser(
            cluster_id=request.info["cluster.json"].get("cluster_id", ""),
            experiment_id=trial.get("experiment_id", 0),
            trial_id=trial.get("trial_id", 0),
        )
        return reserve_slots(
            self._names,
            request.slots,
            priority=request.priority,
            submitted=request.submitted,
            user=user,
            hint="" if count_gpus() else ", or set launcher: {type: local, slots: N}",
        )

    def _described(self, request: LaunchRequest, slots: list[int]) -> LaunchRequest:
        """Return the request with the details that only the launcher knows."""
        cluster = {**request.info["cluster.json"], "slot_ids": slots}
        ours = gpu_variables(slots)
        if self.slots > 1:
            ours |= thread_limit_variables(self.slots)
        host = "127.0.0.1"
        rendezvous = {"container_addrs": [host], "container_rank": 0, "container_slot_counts": [request.slots]}
        return replace(
            request,
            info={**request.info, "cluster.json": cluster, "rendezvous.json": rendezvous},
            env={**ours, **request.env, "DET_CHIEF_IP": host},
        )


def _await_slots(reservation: SlotReservation, request: LaunchRequest) -> list[int]:
    """Wait for the slots, for as long as it takes. Once, say in the trial's log what it waits for.

    Raises:
        LaunchDelayed: the launch was stopped meanwhile.
    """
    explain_at = time.monotonic() + _EXPLAIN_AFTER
    while (slots := reservation.poll()) is None:
        if request.is_stopped():
            raise LaunchDelayed("it was stopped while it waited for slots")
        if time.monotonic() > explain_at:
            explain_at = math.inf
            request.log(None, "det", reservation.explain_wait())
        time.sleep(_POLL_EVERY)
    return slots


def _lock(path: Path) -> int:
    """Lock a file until all processes that inherit the returned descriptor are gone.

    Raises:
        LaunchDelayed: processes hold the lock that belong to another user or cannot be ended.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _wait_for(descriptor, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _wait_for(descriptor: int, path: Path) -> None:
    began = time.monotonic()
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = time.monotonic() - began
        if waited > _GRACE:
            kill_lock_holders(path)
        if waited > _LOCK_SECONDS:
            raise LaunchDelayed(
                f"processes of an earlier run of {path.stem} are still alive after {_LOCK_SECONDS:.0f} s; "
                f"find them with: fuser -v {path}"
            )
        time.sleep(0.05)
