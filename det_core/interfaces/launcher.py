"""Interface of a launcher, which starts the processes of a trial."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from typing import Any, Final, Literal

EXIT_DO_NOT_RESTART = 78
"""Exit code of a worker that would fail again after every restart (EX_CONFIG of sysexits.h)."""
PYTHON = "{det:python}"
"""Element of `LaunchRequest.argv` that stands for the Python interpreter of each node."""


class Phase(Enum):
    """Phases of a launch."""

    QUEUED = "queued"
    """It waits for slots or nodes."""
    STARTING = "starting"
    """It has its slots, and the nodes prepare the start of the processes."""
    RUNNING = "running"
    """The processes run."""


class Cause(Enum):
    """Causes of the end of a launch."""

    WORKERS = "workers"
    """The command has ended by itself. Its exit code says how."""
    OUT_OF_MEMORY = "out of memory"
    """The kernel or the engine killed processes that needed more memory than they may use."""
    PREEMPTED = "preempted"
    """The engine took the slots for others."""
    TIME_LIMIT = "time limit"
    """The engine's time limit is over."""
    NODE_LOST = "node lost"
    """A node, or the connection to it, has failed."""
    CANCELED = "canceled"
    """Somebody canceled the launch with the tools of the engine."""
    NOT_STARTED = "not started"
    """The processes were not started."""


@dataclass(frozen=True, kw_only=True)
class Exit:
    """End of a launch."""

    code: int
    """Exit code of the command, negative for a signal. 1 if the launcher does not know it."""
    cause: Cause = Cause.WORKERS
    """Cause of the end."""
    message: str = ""
    """Explanation in one line, with the names that the engine uses, such as its job id. Empty if there is none. The
    runner shows the cause before it, so it does not repeat the cause."""

    def __post_init__(self) -> None:
        hint = "; if the exit code is unknown, use 1" if self.code is None else ""
        _check_fields(self, hint, code=int, cause=Cause, message=str)


@dataclass(frozen=True, kw_only=True)
class Status:
    """Present state of a launch."""

    phase: Phase
    """Phase of the launch."""
    nodes: Sequence[str] = ()
    """Names of the nodes that it runs on. Empty on this machine."""
    handle: str = ""
    """Name of the launch in the engine, such as ``Slurm job 4711``. Empty without an engine."""
    message: str = ""
    """Explanation in one line, such as the reason why it waits. Empty if there is none."""

    def __post_init__(self) -> None:
        _check_fields(self, phase=Phase, nodes=Sequence, handle=str, message=str)
        if isinstance(self.nodes, str) or not all(isinstance(node, str) for node in self.nodes):
            raise TypeError(f"expected a sequence of names as Status.nodes, got {self.nodes!r:.200}")


def _check_fields(answer: object, hint: str = "", /, **kinds: type) -> None:
    """Check the types of fields, because a wrong one would fail where nobody knows its author."""
    for name, kind in kinds.items():
        if not isinstance(value := getattr(answer, name), kind):
            raise TypeError(f"expected {kind.__name__} as {type(answer).__name__}.{name}, got {value!r:.200}{hint}")


WITHDRAWN: Final = Exit(code=1, cause=Cause.NOT_STARTED, message="it was withdrawn before its start")
"""End of a launch that the runner stops before its processes have been started."""


@dataclass(frozen=True, kw_only=True)
class LaunchRequest:
    """One run of one trial.

    Args:
        key: name of the trial, unique among all tracking stores, of letters, digits and ``-``. It begins with that of
            the experiment (`Launcher.open`) and ``-``. A second launch with the same key waits until all processes of
            the first are gone, or ends them.
        argv: command line of the only process of each node, or of a program that starts all processes of the node, such
            as torchrun. Each element `PYTHON` stands for the interpreter of the node.
        code: gzipped tar file with the user's code, at most 192 MiB when unpacked, for
            `det_core.launch.context_archive.unpack_context_dir`. The processes run in the unpacked directory.
        info: file names mapped to JSON objects, from which ``det.get_cluster_info()`` reads in the processes. The
            launcher adds ``slot_ids`` and ``agent_id`` to ``cluster.json``, and ``rendezvous.json``.
        slots: number of workers of the trial, >= 1.
        log: called from the launcher's threads with the rank (None if unknown), the stream (``"stdout"``, ``"stderr"``,
            or ``"det"`` for the launcher's own lines), and a line without its newline.
        call: function that executes a call of the tracking store for the workers of this run. It takes the method and
            its arguments and returns the answer, as `det_core.tracking.remote` encodes them. It may be called from any
            thread.
        env: variables to add to the environment of the processes.
        secrets: names of the secrets that the config refers to, mapped to their values. Launchers neither log them nor
            write them to files that others can read.
        priority: priority among the launches that wait for slots, 1 to 99. Smaller numbers go first.
        submitted: time of submission, with its time zone. Among launches of the same priority, the earliest goes first.
    """

    key: str
    argv: Sequence[str]
    code: bytes = field(repr=False)
    info: Mapping[str, Mapping[str, Any]] = field(repr=False)
    slots: int
    log: Callable[[int | None, str, str], None] = field(repr=False)
    call: Callable[[str, bytes], bytes] = field(repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    priority: int = 42
    submitted: datetime = field(default_factory=lambda: datetime.now(timezone.utc))


class Allocation(ABC):
    """One launch, from its place in the queue to the end of its processes. No method blocks beyond its time limit.

    If a method raises an exception that is not documented here, returns something else, or has not returned 300 s after
    its time limit, the launch counts as `Cause.NOT_STARTED`. So does one that is in `Phase.STARTING` for 30 minutes, or
    has not ended a minute after `kill`. Once the phase was `Phase.RUNNING`, the cause is `Cause.NODE_LOST`, also after
    any exception. The runner then calls `kill` and `close`.

    When the command has ended, all processes that it started are ended, too. If the process that holds this object
    dies, all of them end within 10 s, and a launch that waits is withdrawn. On other nodes, a time that the config of
    the launcher sets may precede these 10 s.
    """

    @abstractmethod
    def wait(self, timeout: float) -> Exit | None:
        """Wait up to ``timeout`` seconds for the end of the launch, which never changes.

        A launch that waits for slots may take its next step here, such as to start its processes, within the time
        limit.

        Returns:
            The end, or None if the launch has not ended.

        Raises:
            det_core.errors.LaunchError: nothing was started, and no later attempt will succeed.
            det_core.errors.LaunchDelayed: nothing was started, and the runner will try again with another launch.
        """

    @abstractmethod
    def status(self) -> Status:
        """Return the present state at once. The runner asks about five times per second."""

    @abstractmethod
    def preempt(self) -> None:
        """Ask the workers to finish the batch, save a checkpoint and stop. Withdraw a launch that waits.

        `wait` returns an `Exit` with the cause NOT_STARTED for a launch that was withdrawn.
        """

    @abstractmethod
    def kill(self) -> None:
        """End all processes at once and wait for them, for at most 20 s. Withdraw a launch that waits, as `preempt`."""

    def hand_over(self) -> None:
        """Leave the processes to another runner, and end none of them. `close` follows, and leaves them alone, too.

        Called in place of `kill` if `Launcher.adopts` is true and another runner may hold the experiment. By default,
        the processes are killed.
        """
        self.kill()

    @abstractmethod
    def close(self) -> None:
        """Deliver the last log lines, then release slots, files and sockets.

        Called after the end of the launch, or after `hand_over`.
        """


class Launcher(ABC):
    """Factory of allocations, used from any thread. Constructed with the validated ``launcher`` block."""

    slots: int | None = None
    """Maximum number of slots that the trials of an experiment occupy together. None if the launcher queues trials
    itself."""
    adopts: bool = False
    """Whether `adopt` continues launches whose runner is gone."""

    @abstractmethod
    def device(self) -> Literal["cpu", "cuda"]:
        """Return the device of the slots, by which environment variables of the config are chosen."""

    def rehearsal(self, slots: int) -> tuple[Launcher, int]:
        """Return the launcher and the number of slots with which ``det doctor`` tries a launch.

        Args:
            slots: number of slots of the trials of the experiment.
        """
        return self, slots

    def available_slots(self, request: LaunchRequest) -> int | None:
        """Return the number of free slots that a launch could have now, in addition to those that its trial holds.

        The runner asks about every 5 s while an elastic trial has fewer slots than it could use. If the answer is None,
        because the launcher does not know it, such a trial gets more slots only when it is started again.

        Args:
            request: a launch request of the trial, whose place in the queue counts.

        Raises:
            det_core.errors.LaunchError: the number cannot be found out now.
        """
        return None

    def open(self, key: str, keep: Collection[str] = (), renew_lease: Callable[[], None] = lambda: None) -> None:
        """Prepare the launches of an experiment, and remove what earlier runners of it have left in the engine.

        Jobs that nobody watches would hold nodes, and write what their successors write. The runner calls this once,
        before its first launch. It holds the experiment, so no other runner starts launches with these keys.

        Args:
            key: name of the experiment, unique among all tracking stores, of letters, digits and ``-``. The key of each
                launch begins with this name and ``-``.
            keep: keys of the launches that the runner will `adopt`, which stay. A launcher that does not `adopts` is
                called without it, and without ``renew_lease``.
            renew_lease: function that raises a `TrackingError` unless this runner holds the experiment, for any thread,
                until `close`. Called after a look at the engine, it proves that the next runner had none of what was
                seen, so what is then changed in the engine only needs the condition that it has not changed since.

        Raises:
            det_core.errors.LaunchError, det_core.errors.LaunchDelayed: as `start`, which is tried again after it.
        """

    def close(self) -> None:
        """Release what `open` and the launches have shared. The runner calls this once, after its last launch."""

    def adopt(self, request: LaunchRequest, number: float) -> Allocation:
        """Return a launch of an earlier runner, whose processes have outlived it, and return it at once.

        Its workers train on, and what they have reported meanwhile goes to the ``log`` and the ``call`` of the request.
        The launch ends with `Cause.NOT_STARTED`, or one of the errors below is raised, here or by `Allocation.wait`, if
        that is not possible: it has ended, its runner is not lost for the engine, or it is another run or has another
        code or config than the request. The runner then starts a new launch, as without this method.

        Args:
            request: the launch request of the same run. Its ``env`` and ``secrets`` are those of a new launch.
            number: number of this runner, which is larger than those of all earlier ones that have adopted the launch.
                The processes never obey a runner with a smaller one again. The runner that has started them has 0.

        Raises:
            det_core.errors.LaunchError, det_core.errors.LaunchDelayed: it cannot be adopted.
        """
        raise NotImplementedError("this launcher does not adopt launches")

    @abstractmethod
    def start(self, request: LaunchRequest) -> Allocation:
        """Start a launch, and return it at once. It may wait for slots or nodes.

        Args:
            request: the processes to start, and where their output goes.

        Raises:
            det_core.errors.LaunchError: nothing was started, and no later attempt will succeed. The runner pauses the
                trial, and starts others before it.
            det_core.errors.LaunchDelayed: nothing was started, and the runner will try again. Unexpected exceptions
                count as this one.
        """
