"""One node of a launch, from the runner's side of its agent."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from det_cluster import _agent_command
from det_cluster import _agent_messages as messages
from det_cluster._surviving_agent import LOG
from det_core.errors import TrackingError
from det_core.interfaces.launcher import Cause, Exit, LaunchRequest
from det_core.tracking import remote
from det_core.version import __version__

_SILENCE_SECONDS = messages.SILENCE_SECONDS + messages.BEAT_SECONDS
"""Seconds without a message after which a node is lost. Its agent, whose last message may be a beat older than that of
this side, has given up by then."""


@dataclass
class SharedLaunch:
    """State of a launch that all of its nodes share."""

    log: Callable[[int | None, str, str], None]
    """Function that takes a line of the log, as `LaunchRequest.log`."""
    call: Callable[[str, bytes], bytes]
    """Function that answers calls of the tracking store, as `LaunchRequest.call`."""
    print_line: Callable[[str], None]
    """Function that takes a line which is no message."""
    callers: ThreadPoolExecutor
    """Threads for the calls of the tracking store."""
    request: LaunchRequest | None
    """The request until the workers were ordered to start, or None afterwards, because its code may be large."""
    reconnect_seconds: float
    """Seconds for which agents and their workers outlive a lost connection, or 0."""
    fingerprint: str
    """Text that agents of the same request have, or an empty string without ``reconnect_seconds``."""
    adopted_as: float
    """Number of this runner if it adopts the workers, or 0."""
    changed: threading.Event = field(default_factory=threading.Event)
    """Event that is set after each change of a node."""
    is_stopping: bool = False
    """Whether the workers were asked to save a checkpoint and stop."""
    is_killed: bool = False
    """Whether the workers were ordered to end."""
    is_replaced: bool = False
    """Whether an agent obeys a later runner. This one gives no more orders, also on nodes that it still reaches."""


class AgentNode:
    """State of one node, as its agent reports it, and the answers to its calls.

    Args:
        index: index of the node in the launch.
        launch: what it shares with the other nodes.
    """

    def __init__(self, index: int, launch: SharedLaunch) -> None:
        self.index = index
        self.name = ""
        self.hello: Mapping[str, Any] | None = None
        self.started = False
        self.end: Exit | None = None
        self.ended_at = 0.0
        """Time of the end by the monotonic clock."""
        self.lost = False
        """Whether workers may be left on the node, because its agent did not report their end."""
        self.has_refused = False
        """Whether no later launch will succeed on the node."""
        self.problem = ""
        """Why the connection was lost."""
        self.lost_at: float | None = None
        """Time at which the connection was lost, or None if there is one."""
        self.tried_at = 0.0
        """Time of the last attempt to connect again."""
        self.is_welcome = False
        """Whether the agent on the present connection was told that the runner is there."""
        self.command: _agent_command.AgentCommand
        self.heard_at = time.monotonic()
        """Time of the last line of the agent."""
        self._launch = launch
        self._lock = threading.Lock()
        self._unanswered: set[int] = set()
        """Ids of the calls that are executed."""
        self._logged = -1
        """Id of the last call with lines of the log. Later ones have larger ids."""

    @property
    def title(self) -> str:
        """Name for errors. That of a node whose agent was not reached yet is unknown."""
        return self.name or f"node {self.index}"

    def take(self, message: Mapping[str, Any] | str) -> None:
        """Take a message of the agent, or a line that something else has printed."""
        if isinstance(message, str):
            self._launch.print_line(message)
            return
        kind = message["kind"]
        if kind == "hello":
            self._take_hello(message)
        elif kind == "gone":
            self.finish(self.describe_loss(f"the agent of {self.title} has ended"), lost=True)
        elif kind == "replaced":
            self._launch.is_replaced = True
            self.finish(self.describe_loss(f"the agent of {self.title} obeys a later runner"), lost=True)
        elif kind == "started":
            self.started = True
            self._launch.changed.set()
        elif kind == "exit":
            self._take_exit(message)
        elif kind == "log":
            self._launch.log(message["rank"], message["stream"], message["text"])
        elif kind == "call" and message["id"] not in self._unanswered:  # an agent repeats those without an answer
            self._unanswered.add(message["id"])
            self._launch.callers.submit(self._answer, message)

    def finish(self, end: Exit, *, lost: bool = False) -> None:
        """Record the end of the node, unless it has ended before."""
        with self._lock:
            if self.end is None:
                self.ended_at, self.lost = time.monotonic(), lost
                self.end = end
        self._launch.changed.set()

    def lose(self, message: str) -> None:
        """Record that the connection to the agent is lost. The node ends, unless its agent may have survived."""
        self.problem = message
        if self._launch.reconnect_seconds and self._launch.request is None:
            if self.lost_at is None and not self.end:
                self.lost_at = time.monotonic()
                self._launch.log(None, "det", f"no connection to {self.title}, connecting again: {message}")
            self._launch.changed.set()
        else:
            self.finish(self.describe_loss(message), lost=True)

    def describe_loss(self, message: str) -> Exit:
        """Return the end of a node that was lost."""
        cause = Cause.NODE_LOST if self.started else Cause.NOT_STARTED
        return Exit(code=1, cause=cause, message=message)

    def check_life(self) -> None:
        """End the node if it is silent for too long, or after its command, whose stdout another process may keep.

        What is not read does not count as silence.
        """
        now, heard_at = time.monotonic(), max(self.heard_at, self.command.deaf_until)
        if self.hello and now > heard_at + _SILENCE_SECONDS:
            self.lose(f"{self.name or self.command.text} has been silent for {now - heard_at:.0f} s")
        if now > max(heard_at, self.command.ended_at) + _agent_command.END_SECONDS:
            self.lose(self.command.explain_end())

    def _take_hello(self, message: Mapping[str, Any]) -> None:
        if problem := self._explain_refusal(message):
            self.finish(Exit(code=1, cause=Cause.NOT_STARTED, message=problem))
        elif self.hello and self.hello["agent"] != message["agent"]:
            self.finish(self.describe_loss(f"{self.name} has started another agent"), lost=True)
        else:
            self.hello = self.hello or message
            if self._launch.adopted_as:
                self.name = message["name"]
            if self.lost_at is not None:
                seconds = time.monotonic() - self.lost_at
                self._launch.log(None, "det", f"connected to {self.name} again after {seconds:.0f} s")
            if "agent" in message:
                self.is_welcome, self.lost_at, self.started = True, None, message["started"]
                protocol = messages.choose_protocol(message)
                self.command.send("welcome", protocol=protocol, runner=self._launch.adopted_as)
                self._repeat_orders()
            self._launch.changed.set()

    def _explain_refusal(self, greeting: Mapping[str, Any]) -> str:
        """Return why the agent cannot be used, or "" if it can."""
        if messages.choose_protocol(greeting) is None:
            theirs, ours = (" and ".join(map(str, known)) for known in (greeting["protocols"], messages.PROTOCOLS))
            return (
                f"{greeting['host']} speaks the protocols {theirs} (det-core {greeting['version']}), expected one of "
                f"{ours} (det-core {__version__}); install the same release on all nodes"
            )
        if self._launch.adopted_as and greeting.get("request") != self._launch.fingerprint:
            return "its processes belong to another run, or have another code, config or release"
        return ""

    def _take_exit(self, message: Mapping[str, Any]) -> None:
        end = Exit(code=message["code"], cause=Cause(message["cause"]), message=message["message"])
        self.has_refused = message.get("refused", False)
        self.finish(end, lost=end.cause is Cause.NODE_LOST)
        if self.is_welcome:
            self.command.send("bye")

    def _repeat_orders(self) -> None:
        """Send what the agent may have missed."""
        if self._launch.is_stopping:
            self.command.send("preempt")
        if self._launch.is_killed:
            self.command.send("kill")

    def _answer(self, message: Mapping[str, Any]) -> None:
        method, number = message["method"], message["id"]
        try:
            content = messages.unpack_bytes(message["body"])
            body = self._log_lines(number, content) if method == LOG else self._launch.call(method, content)
        except Exception as error:  # noqa: BLE001  (the worker raises it)
            body = remote.dump_error(TrackingError(f"{method} failed: {type(error).__name__}: {error}"))
        self._unanswered.discard(number)
        self.command.send("answer", node=self.index, id=number, body=messages.pack_bytes(body))

    def _log_lines(self, number: int, content: bytes) -> bytes:
        """Log the lines of a call, unless they were logged before, and return its answer."""
        if number > self._logged:
            self._logged = number
            for line in content.splitlines():
                self._launch.log(*json.loads(line))
        return remote.RETURNED_NOTHING
