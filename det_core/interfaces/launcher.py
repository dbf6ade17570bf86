"""Interface of a launcher, which starts the processes of a trial."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

EXIT_DO_NOT_RESTART = 78
"""Exit code of a worker that would fail again after every restart (EX_CONFIG of sysexits.h)."""


@dataclass(frozen=True, kw_only=True)
class LaunchRequest:
    """One run of one trial.

    Args:
        name: id of the trial on this host. A second launch of the same name waits until all processes of the first are
            gone, or ends them.
        argv: command line of the only process, or of a program that starts all of them, such as torchrun.
        cwd: working directory of the processes, which contains the user's code.
        info: file names mapped to JSON objects, from which ``det.get_cluster_info()`` reads in the processes. The
            launcher adds ``slot_ids`` to ``cluster.json``, and ``rendezvous.json``.
        slots: number of workers of the trial, >= 1.
        log: called from the launcher's threads with the rank (None if unknown), the stream (``"stdout"``, ``"stderr"``,
            or ``"det"`` for the launcher's own lines), and a line without its newline.
        env: variables to add to their environment.
        priority: priority among the launches that wait for slots, 1 to 99. Smaller numbers go first.
        submitted: time of submission. Among launches of the same priority, the earliest goes first.
        is_stopped: function that returns whether the launch is to be given up while it waits for slots.
    """

    name: str
    argv: Sequence[str]
    cwd: Path
    info: Mapping[str, Mapping[str, Any]]
    slots: int
    log: Callable[[int | None, str, str], None]
    env: Mapping[str, str] = field(default_factory=dict)
    priority: int = 42
    submitted: datetime = field(default_factory=lambda: datetime.now(timezone.utc))
    is_stopped: Callable[[], bool] = lambda: False


class Allocation(ABC):
    """The running processes of one launch. No method blocks for longer than its time limit.

    When the first process has ended, its remaining child processes are ended too. If the process that holds this object
    dies, all of them end within 10 s.
    """

    @abstractmethod
    def wait(self, timeout: float) -> int | None:
        """Wait up to ``timeout`` seconds for the first process to end.

        Returns:
            The exit code (negative for a signal), or None if the process is still running.
        """

    @abstractmethod
    def preempt(self) -> None:
        """Ask the workers to finish the batch, save a checkpoint and stop."""

    @abstractmethod
    def kill(self) -> None:
        """End all processes at once and wait for them."""

    @abstractmethod
    def close(self) -> None:
        """Deliver the last log lines, then release files and sockets. Called after the processes have ended."""


class Launcher(ABC):
    """Factory of allocations, used from any thread. Constructed with the validated ``launcher`` block."""

    slots: int | None = None
    """Maximum number of slots that the trials of an experiment occupy together. None if the launcher queues trials
    itself."""

    @abstractmethod
    def start(self, request: LaunchRequest) -> Allocation:
        """Start the processes, if necessary after a wait for slots.

        Args:
            request: the processes to start, and where their output goes.

        Returns:
            The running processes.

        Raises:
            det_core.errors.LaunchError: nothing was started, and no later attempt will succeed.
            det_core.errors.LaunchDelayed: nothing was started, and the runner will try again.
        """
