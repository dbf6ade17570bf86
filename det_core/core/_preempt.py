"""Requests to the trial to save a checkpoint and stop."""

from __future__ import annotations

import logging
import os
import queue
import signal
import threading
import time
import weakref
from collections.abc import Callable
from enum import Enum
from types import FrameType
from typing import TYPE_CHECKING, Final

from det_core.core._distributed import DistributedContext
from det_core.errors import CommError, TrackingError
from det_core.owner_process import OwnerProcess
from det_core.tracking._open import AGENT_SOCKET

if TYPE_CHECKING:
    from det_core.core.agent_channel import AgentChannel

_log = logging.getLogger("det.core")
_POLL_INTERVAL = 2.0
"""Seconds between two polls of the tracking store, if no runner forwards its requests."""
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_TERMINATION_DELAY: Final = 5.0
"""Seconds from the first SIGTERM until another one ends a script that never polls for requests."""
_installed: weakref.WeakSet[SignalHandlers] = weakref.WeakSet()


class PreemptMode(str, Enum):
    """Rules on which workers may call `PreemptContext.should_preempt` and which of them decide."""

    WorkersAskChief = "WORKERS_ASK_CHIEF"
    """All workers call it at the same points of training. The chief decides for all, so they stop together."""
    ChiefOnly = "CHIEF_ONLY"
    """Only the chief may call it. Your code informs the other workers."""
    WorkersAskMaster = "WORKERS_ASK_MASTER"
    """Every worker decides by itself, so some may stop before others."""


class PreemptContext:
    """Collector of requests to stop.

    Requests are SIGTERM and SIGINT, messages of the runner, requests in the tracking store, and the loss of the
    runner. A worker that receives a signal forwards it to the chief. The first SIGINT is a request, and the second
    raises KeyboardInterrupt as usual. SIGTERM is a request, too. If `should_preempt` was never called, another SIGTERM
    at least five seconds later raises SystemExit with 143, the exit code of a process that SIGTERM ended.
    """

    def __init__(
        self,
        distributed: DistributedContext,
        mode: PreemptMode,
        *,
        announce: Callable[[str], None],
        acknowledge: Callable[[], None],
        poll: Callable[[], str | None] | None = None,
    ) -> None:
        """Create a context that collects nothing until it is started.

        Args:
            distributed: rank of this worker and connection to the others.
            mode: which workers may call `should_preempt`.
            announce: function that the chief calls once with the source of the request.
            acknowledge: records in the tracking store that this run stops early.
            poll: reads the source of a request to stop from the tracking store. None = a runner forwards requests.
        """
        self._distributed = distributed
        self._mode = mode
        self._announce_request = announce
        self._acknowledge = acknowledge
        self._poll = poll
        self._is_chief = distributed.rank == 0
        self._owner = OwnerProcess("the core context")
        self._reason: str | None = None
        self._started = False
        self._asked = False
        self._announced = False
        self._acknowledged = False
        self._closing = threading.Event()
        self._channel: AgentChannel | None = None
        self._signals = SignalHandlers(self._on_signal, lambda: not self._asked and not self._closing.is_set())
        # The put() of a SimpleQueue is reentrant, so signal handlers may call it.
        self._to_chief: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._messenger: threading.Thread | None = None

    def should_preempt(self, auto_ack: bool = True) -> bool:
        """Return whether the trial was asked to stop.

        In WorkersAskChief with several workers, each call is a broadcast. In all other cases it is a memory read.

        Args:
            auto_ack: whether to acknowledge the request when the answer is True for the first time. Pass False if
                your code may decide to continue, and call `acknowledge_preemption_signal` once it decides to stop.

        Raises:
            RuntimeError: the call is outside the core context's ``with`` block or in a forked child, or the mode is
                ChiefOnly and the worker is not the chief.
        """
        self._owner.require()
        if not self._started:
            raise RuntimeError("the core context is not entered; use it as: with core.init() as core_context")
        if not self._is_chief and self._mode is PreemptMode.ChiefOnly:
            raise RuntimeError(
                f"rank {self._distributed.rank} called should_preempt(), which PreemptMode.ChiefOnly reserves for "
                "rank 0; broadcast the chief's answer, or use PreemptMode.WorkersAskChief"
            )
        self._asked = True
        reason = self._reason
        if self._distributed.size > 1 and self._mode is PreemptMode.WorkersAskChief:
            reason = self._distributed.broadcast(reason)
        if reason is None:
            return False
        if not self._announced:
            self._announce(reason)
        if auto_ack and (self._is_chief or self._mode is PreemptMode.WorkersAskMaster):
            self.acknowledge_preemption_signal()
        return True

    def acknowledge_preemption_signal(self) -> None:
        """Report to the runner that this process stops before its work is done and has to be started again.

        Without this acknowledgement, exit code 0 means that the work is done.
        """
        if not self._acknowledged:
            self._acknowledge()
            self._acknowledged = True

    def _announce(self, reason: str) -> None:
        self._announced = True
        _log.info("asked to stop (%s): finishing the batch, then saving a checkpoint", reason)
        if self._is_chief:
            self._announce_request(reason)

    def _start(self) -> None:
        self._started = True
        self._signals.install()
        if path := os.environ.get(AGENT_SOCKET):
            from det_core.core.agent_channel import AgentChannel  # scripts by themselves do not need it

            self._channel = AgentChannel(path, self._request)
        if self._poll and (self._is_chief or self._mode is PreemptMode.WorkersAskMaster):
            threading.Thread(target=self._keep_polling, name="det-preempt", daemon=True).start()
        if self._distributed.size > 1 and self._mode is not PreemptMode.WorkersAskMaster:
            if self._is_chief:
                self._distributed._listen(self._request)
            else:
                self._messenger = threading.Thread(target=self._pass_on, name="det-preempt", daemon=True)
                self._messenger.start()

    def _close(self) -> None:
        self._closing.set()
        self._to_chief.put(None)
        if self._messenger:
            self._messenger.join(_POLL_INTERVAL)
        if self._channel:
            self._channel.close()

    def _request(self, reason: str) -> None:
        self._reason = self._reason or reason

    def _on_signal(self) -> None:
        self._request("signal")
        self._to_chief.put("signal")

    def _pass_on(self) -> None:
        while reason := self._to_chief.get():
            try:
                self._distributed._notify(reason)
            except CommError as error:
                _log.warning("could not forward a signal to the chief: %s", error)

    def _keep_polling(self) -> None:
        assert self._poll
        while self._reason is None and not self._closing.wait(_POLL_INTERVAL):
            try:
                if reason := self._poll():
                    self._request(reason)
            except TrackingError as error:
                _log.warning("could not poll for requests to stop, will retry: %s", error)


class ScriptTerminated(SystemExit):
    """Exit of a script that never polls for requests and received SIGTERM again."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


class SignalHandlers:
    """Handlers that turn signals into requests to stop.

    The first SIGINT is a request, the second raises KeyboardInterrupt. SIGTERM is a request. Ignored signals stay
    ignored. In a forked child the previous handler of SIGTERM is restored, so that its parent can end it. The handler
    of SIGINT stays: a terminal sends SIGINT to parent and children alike, and the parent may need them to finish its
    batch.

    Args:
        request: called in the handler.
        is_deaf: returns whether the script never polls for requests. In such a script a second SIGTERM, seconds
            later, raises `ScriptTerminated`.
    """

    def __init__(self, request: Callable[[], None], is_deaf: Callable[[], bool]) -> None:
        self._request, self._is_deaf = request, is_deaf
        self._previous: dict[int, Callable[[int, FrameType | None], object] | int] = {}
        self._terminated_at: float | None = None
        self._interrupted = False

    def install(self) -> None:
        """Install the handlers. Do nothing outside the main thread, where Python allows no handlers."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if handler != signal.SIG_IGN:
                # None: the handler was not installed from Python, and cannot be restored.
                self._previous[number] = signal.SIG_DFL if handler is None else handler
                signal.signal(number, self._on_signal)
        _installed.add(self)

    def restore(self) -> None:
        """Restore the previous handlers."""
        _installed.discard(self)
        for number in list(self._previous):
            self._put_back(number)

    def _put_back(self, number: int) -> None:
        if number in self._previous:
            signal.signal(number, self._previous.pop(number))

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            if self._interrupted:
                raise KeyboardInterrupt
            self._interrupted = True
        else:
            now = time.monotonic()
            self._terminated_at = now if self._terminated_at is None else self._terminated_at
            if now - self._terminated_at >= _TERMINATION_DELAY and self._is_deaf():
                raise ScriptTerminated
        self._request()


class _Masks(threading.local):
    """Signal masks that a thread had before each fork it is in the middle of."""

    def __init__(self) -> None:
        self.stack: list[set[int]] = []


_masks: Final = _Masks()


def _before_fork() -> None:
    # A new child forgets the signals that came before Python is ready in it. Blocked ones wait in the kernel.
    _masks.stack.append(signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS))


def _after_fork() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _masks.stack.pop())


def _after_fork_in_child() -> None:
    for handlers in _installed:
        handlers._put_back(signal.SIGTERM)
    _after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
