"""Command that connects the runner with the agents of one or more nodes."""

from __future__ import annotations

import math
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from det_cluster import _agent_messages as messages
from det_cluster import _descriptor_keeper
from det_core.errors import LaunchError
from det_core.interfaces.launcher import Exit
from det_core.launch.node_agent import explain_start_errors
from det_core.launch.worker_environment import AGENT_STORE_VARIABLES, make_search_path
from det_core.version import __version__

END_SECONDS = 10.0
"""Seconds to wait for what ends with a command."""
TERMINATE_SECONDS = 2.0
"""Seconds from SIGTERM until a command is killed."""
_PRIVATE = (*AGENT_STORE_VARIABLES, "PGPASSWORD")
"""Variables of this process that give access to its tracking store. Engines pass variables of commands on to nodes."""
_MISSING = ("python3", "det_cluster", "det_core")
"""Names in the errors of commands that found no agent."""


class CommandNode(Protocol):
    """Node whose agent a command reaches."""

    hello: Mapping[str, Any] | None
    """Introduction of the agent, or None before it."""
    end: Exit | None
    """End of the node, or None before it."""
    heard_at: float
    """Time of the last line of the agent."""
    command: AgentCommand
    """Present command of the node."""
    is_welcome: bool
    """Whether the agent on the present connection was told that the runner is there."""

    def take(self, message: Mapping[str, Any] | str) -> None:
        """Take a message of the agent, or a line that something else has printed."""

    def lose(self, message: str) -> None:
        """Record that the connection to the agent is lost."""


class AgentCommand:
    """Command that connects this process with the agents of one or more nodes.

    Args:
        index: index of the command in the launch.
        command: the command.
        nodes: nodes whose agents it starts.
        log: function that gets each line that is not part of a message.
        inherit: file descriptors that stay open until the command ends.
        labeled: whether each line of its stdout begins with the index of a node.

    Raises:
        LaunchError: it cannot be started.
    """

    def __init__(
        self,
        index: int,
        command: Sequence[str],
        nodes: Sequence[CommandNode],
        log: Callable[[str], None],
        inherit: Sequence[int],
        *,
        labeled: bool,
    ) -> None:
        self.text = shlex.join(command)
        self.nodes = nodes
        self.labeled = labeled
        self._log = log
        self._is_kept = bool(inherit)
        self._last_words = ""
        self._terminated_at: float | None = None
        self._ended_at = math.inf
        self.deaf_until = 0.0
        """Time until which messages were not read, because the log of one had to wait. Infinite during the wait."""
        for node in nodes:
            node.command = self
        keeper = [sys.executable, "-I", "-S", _descriptor_keeper.__file__] if inherit else []
        with explain_start_errors(self.text):
            self.process = subprocess.Popen(
                [*keeper, *command],
                env=_make_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=inherit,
                start_new_session=True,  # a Ctrl-C in the terminal does not reach it
            )
        assert self.process.stdin
        self._threads = [
            threading.Thread(target=target, name=f"det-node-{index}", daemon=True)
            for target in (self._read_errors, self._read_messages)
        ]
        try:
            self._writer = messages.MessageWriter(self.process.stdin)
            for thread in self._threads:
                thread.start()
        except RuntimeError:  # there is no free thread
            with self.process:
                self.process.kill()
            raise

    def has_ended(self) -> bool:
        """Return whether all nodes of the command have ended."""
        return all(node.end for node in self.nodes)

    def send(self, kind: str, **fields: Any) -> None:
        """Send a message to all agents in the background."""
        self._writer.send(kind, **fields)

    def terminate(self) -> None:
        """End the command, which ends the agents, too. It is killed if it has not ended by a later call."""
        now = time.monotonic()
        if self._terminated_at is None:
            self._terminated_at = now
            self._signal(signal.SIGTERM)
        elif now > self._terminated_at + TERMINATE_SECONDS:
            self._signal(signal.SIGKILL)

    @property
    def ended_at(self) -> float:
        """Time at which the command was first seen to have ended, or infinity."""
        if self._ended_at == math.inf and self.process.poll() is not None:
            self._ended_at = time.monotonic()
        return self._ended_at

    def explain_end(self) -> str:
        """Return how the command has ended, with its last words."""
        details = f": {self._last_words}" if self._last_words else ""
        if not any(node.hello for node in self.nodes) and any(word in self._last_words for word in _MISSING):
            details += f"; install det-cluster {__version__} for the python3 that is first on the PATH of the node"
        code = self.process.returncode
        how = "closed its output" if code is None else f"ended with code {code}"
        return f"the command {self.text!r} {how}{details}"

    def hang_up(self) -> None:
        """Close stdin of the command once everything is written."""
        self._writer.close()

    def end_by(self, deadline: float, number: int) -> None:
        """Wait for the command until a time, and then send it a signal."""
        try:
            self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._signal(number)

    def join(self, deadline: float) -> None:
        """Wait until a time for the command and the threads. A thread whose pipe another process keeps ends with it."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(max(0.0, deadline - time.monotonic()))
        for join in (*(thread.join for thread in self._threads), self._writer.join):
            join(max(0.0, deadline - time.monotonic()))

    def _read_messages(self) -> None:
        assert self.process.stdout
        readers = [messages.MessageReader(lambda: self.send("alive")) for _ in self.nodes]
        try:
            with self.process.stdout as lines:
                for line in lines:
                    index, content = self._split_label(line)
                    node = self.nodes[index]
                    message = readers[index].take_line(content)
                    if node.command is self:  # and not one that was replaced
                        node.heard_at = time.monotonic()
                        if message is not None:
                            self._pass_on(node, message)
        except Exception as error:  # noqa: BLE001  (an agent of another release may send anything)
            self._lose(str(error) if isinstance(error, LaunchError) else f"{type(error).__name__}: {error}")
            self._signal(signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(END_SECONDS)
        self._threads[0].join(END_SECONDS)  # which gets the reason
        self._lose(self.explain_end())

    def _pass_on(self, node: CommandNode, message: Mapping[str, Any] | str) -> None:
        """Let a node take a message, and note the time if that takes long."""
        began, before = time.monotonic(), self.deaf_until
        self.deaf_until = math.inf
        try:
            node.take(message)
        finally:
            now = time.monotonic()
            self.deaf_until = now if now - began > messages.BEAT_SECONDS else before

    def _split_label(self, line: bytes) -> tuple[int, bytes]:
        """Return the index in `nodes` of the node that a line comes from, and the rest of the line."""
        label, mark, content = line.partition(b": ")
        is_label = self.labeled and mark and label.strip().isdigit() and int(label) < len(self.nodes)
        return (int(label), content) if is_label else (0, line)

    def _read_errors(self) -> None:
        assert self.process.stderr
        with self.process.stderr as lines:
            for line in lines:
                text = line.decode("utf-8", "replace").rstrip()
                self._last_words = text or self._last_words
                self._log(text)

    def _signal(self, number: int) -> None:
        """Send a signal to the command. SIGKILL also reaches what keeps its descriptors."""
        if self._is_kept and number == signal.SIGKILL and self.process.poll() is None:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)

    def _lose(self, message: str) -> None:
        for node in self.nodes:
            if node.command is self:
                node.lose(message)


def _make_environment() -> dict[str, str]:
    """Return the variables of a command."""
    passed_on = {name: value for name, value in os.environ.items() if name not in _PRIVATE}
    return {**passed_on, "PATH": make_search_path()}
