"""What a launcher implements: where the processes of a trial start."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EXIT_DO_NOT_RESTART = 78
"""Exit code of a worker that failed for a reason that every restart would meet again (EX_CONFIG of sysexits.h)."""


@dataclass(frozen=True, kw_only=True)
class LaunchRequest:
    """One run of one trial.

    Args:
        name: identifies the trial on this host; a second launch of the same name waits until all
            processes of the first are gone, or ends them.
        argv: the command line of its only process, or of what starts all of them, such as torchrun.
        cwd: its working directory, the user's code.
        info: what ``det.get_cluster_info()`` shall return there: file name -> JSON object. The launcher adds
            ``slot_ids`` to ``cluster.json``, and ``rendezvous.json``.
        slots: how many workers the trial has, >= 1.
        log: called with (rank, or None where a line does not tell; ``"stdout"``, ``"stderr"``, or ``"det"`` for the
            launcher's own words; a line without its newline), from the launcher's threads.
        env: variables added to their environment.
    """

    name: str
    argv: Sequence[str]
    cwd: Path
    info: Mapping[str, Mapping[str, Any]]
    slots: int
    log: Callable[[int | None, str, str], None]
    env: Mapping[str, str] = field(default_factory=dict)


class Allocation(ABC):
    """The running processes of one launch. No method blocks for longer than its time limit.

    When the first process has ended, those that it left behind are ended too. All of them end within 10 s of losing
    the process that holds this object.
    """

    @abstractmethod
    def wait(self, timeout: float) -> int | None:
        """Wait up to ``timeout`` seconds; the exit code (negative = a signal), or None if still running."""

    @abstractmethod
    def preempt(self) -> None:
        """Ask the workers to finish the batch, checkpoint and leave."""

    @abstractmethod
    def kill(self) -> None:
        """End all processes at once and wait for them."""

    @abstractmethod
    def close(self) -> None:
        """After the end: deliver the last log lines and release files and sockets."""


class Launcher(ABC):
    """Starts allocations, from any thread. Constructed with the validated ``launcher`` block."""

    slots: int | None = None
    """How many the trials of an experiment may have together; None: the launcher lets those wait that have no room."""

    @abstractmethod
    def start(self, request: LaunchRequest) -> Allocation:
        """Start the processes.

        Raises:
            det_core.errors.LaunchError: nothing was started, and no later attempt will succeed.
            det_core.errors.LaunchDelayed: nothing was started, and the runner will try again.
        """
