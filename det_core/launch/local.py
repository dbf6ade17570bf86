"""Local launcher, whose only node is this machine and whose agent runs in the process of the runner."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from det_core.config import Block, Positive
from det_core.errors import LaunchDelayed, LaunchError
from det_core.home import private_directory
from det_core.interfaces.launcher import Allocation, Launcher, LaunchRequest
from det_core.launch._agent import Agent
from det_core.launch._worker_environment.thread_limits import thread_limit_variables
from det_core.launch.gpu_slots import SlotPool, count_gpus, gpu_variables
from det_core.launch.processes import kill_lock_holders

_GRACE = 10.0
"""Seconds that processes of an earlier run have to end by themselves, as they do when their runner is gone."""
_LOCK_SECONDS = 15.0
"""Seconds to wait for the end of processes of an earlier run."""
_TEMPORARY = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT)
"""Error numbers of temporarily exhausted resources."""


class LocalConfig(Block):
    """Options of the local launcher."""

    slots: Positive = 1
    """Number of workers that this machine can run if it has no GPU."""


class LocalLauncher(Launcher):
    """Launcher that starts workers as children of the calling process."""

    def __init__(self, config: LocalConfig) -> None:
        self._pool = SlotPool(count_gpus() or config.slots)
        self.slots: int = self._pool.size

    def start(self, request: LaunchRequest) -> Allocation:
        slots = self._pool.take(request.slots)
        try:
            lock = _lock(private_directory("locks") / f"{request.name}.lock")
            try:
                return Agent(self._described(request, slots), lock=lock, closed=partial(self._pool.give_back, slots))
            finally:
                os.close(lock)  # the processes have inherited it
        except OSError as error:
            self._pool.give_back(slots)
            kind = LaunchDelayed if error.errno in _TEMPORARY else LaunchError
            raise kind(f"cannot start {request.argv[0]!r} in {request.cwd}: {error}") from error
        except BaseException:
            self._pool.give_back(slots)
            raise

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
