"""Whether the trial was asked to checkpoint and leave."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

from det_core import events
from det_core.core.agent_channel import SOCKET, AgentChannel
from det_core.plugins import emit

_log = logging.getLogger("det.core")
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class PreemptContext:
    """Collects requests to leave: SIGTERM, SIGINT, the runner, and the loss of the runner.

    The first SIGINT asks; the second raises KeyboardInterrupt as usual.
    """

    def __init__(self, trial_id: int, acknowledge: Callable[[], None]) -> None:
        self._trial_id = trial_id
        self._acknowledge = acknowledge
        self._reason: str | None = None
        self._announced = False
        self._acknowledged = False
        self._channel: AgentChannel | None = None
        self._previous: dict[int, object] = {}

    def should_preempt(self, auto_ack: bool = True) -> bool:
        """True once the trial was asked to leave. Costs a memory read until then.

        Args:
            auto_ack: acknowledge when the answer is True for the first time. Pass False if you may
                decide to stay, and call `acknowledge_preemption_signal` once you comply.
        """
        if self._reason is None:
            return False
        if not self._announced:
            self._announced = True
            _log.info("asked to leave (%s): finishing the batch, then checkpointing", self._reason)
            emit(events.PreemptionRequested(trial_id=self._trial_id, reason=self._reason))
        if auto_ack:
            self.acknowledge_preemption_signal()
        return True

    def acknowledge_preemption_signal(self) -> None:
        """Tell the runner that this process leaves before its work is done and wants to be started again."""
        if not self._acknowledged:
            self._acknowledge()
            self._acknowledged = True

    def _start(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        if path := os.environ.get(SOCKET):
            self._channel = AgentChannel(path, self._request)

    def _close(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # None = not installed from Python
        self._previous = {}
        if self._channel:
            self._channel.close()

    def _request(self, reason: str) -> None:
        self._reason = self._reason or reason

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self._reason is not None:
            raise KeyboardInterrupt
        self._request("signal")
