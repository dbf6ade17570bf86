"""Runner's side of node agents that run as programs behind pipes."""

from __future__ import annotations

import hashlib
import json
import math
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any

from det_cluster import _agent_messages as messages
from det_cluster._agent_command import TERMINATE_SECONDS, AgentCommand
from det_cluster._agent_node import AgentNode, SharedLaunch
from det_cluster.agent_program import GRACE
from det_cluster.mounted_storage import mark_mounted_storage
from det_core.errors import LaunchError
from det_core.interfaces.launcher import (
    EXIT_DO_NOT_RESTART,
    WITHDRAWN,
    Allocation,
    Cause,
    Exit,
    LaunchRequest,
    Phase,
    Status,
)
from det_core.tracking import AGENT_URL

AGENT_COMMAND = ("python3", "-m", "det_cluster.agent_program")
"""Command that starts a node agent, for the end of a command such as ``ssh HOST``."""
_START_SECONDS = 120.0
"""Seconds until the agents must have started."""
_PREPARE_SECONDS = 600.0
"""Seconds from then until the workers must have started. The code of a trial may be large, and the network slow."""
_FAILURE_GRACE = 10.0
"""Seconds from the failure of the first node until the others are killed. Their workers usually end by themselves."""
_KILL_SECONDS = 10.0
"""Seconds from the order to kill until the commands themselves are killed, and to wait for their ends."""
_LOST_SECONDS = 10.0
"""Seconds that a node that was lost has to end its workers, before the trial may start again on another one. Engines
that start all nodes with a single command keep two launches of a trial apart themselves."""
_TICK = 1.0
"""Maximum number of seconds between two checks of what depends on time alone."""
_CALLS_AT_ONCE = 4
_RECONNECT_SECONDS = 2.0
"""Seconds between two attempts to connect again."""
_ATTACH = "--attach"
"""Argument of a command that starts no agent, but connects to the one that is there."""
_RECONNECT_MARGIN = 5.0
"""Seconds that agents may take beyond their time limits."""
_SAVE_SECONDS = 600.0
"""Seconds that workers have to save a checkpoint, as those that the user stops have by default."""


@dataclass(frozen=True)
class _Notice:
    """Preemption by the launcher."""

    cause: Cause
    message: str
    given_at: float
    kill_at: float


class AgentGroup(Allocation):
    """Launch on one or more nodes, each with a command that runs `det_cluster.agent_program`.

    Args:
        request: the launch request.
        commands: command of each node, such as ``["ssh", "n1", *AGENT_COMMAND, "--node", "0"]``. It connects its stdin
            and stdout with those of the agent. If there are several nodes, each agent gets its index as ``--node I``.
            On this machine, ``python3`` is found next to the interpreter of this process.
        nodes: number of nodes, if a single command starts the agents of all of them. Its stdin reaches all agents, and
            each line of its stdout starts with the index of a node and ``": "``, as with ``srun --label``.
        hosts: name or address of each node, at which the other nodes reach it. By default the names that the nodes
            have for themselves.
        slot_ids: slots of each node that the launch may use. By default the first ones, the same number on all nodes.
        start_seconds: number of seconds until the agents must have started.
        inherit: file descriptors that stay open until the commands end, such as those of a `QueuedLaunch`.
        reconnect_seconds: number of seconds for which agents and their workers outlive a lost connection, or 0. In this
            time, a command is started again and again, until it reaches the agent. The nodes must run Linux. Only with
            a command for each node, whose last words are those of the agent.
        launch: id of the launch, unique among those of its key. With ``reconnect_seconds``, agents are found by it.
        adopted_as: number of this runner, as `Launcher.adopt` gets it, to adopt the workers of a launch with this id
            and ``reconnect_seconds``, or 0 to start workers. If its agents are not there, or have another request,
            the launch ends with `Cause.NOT_STARTED`.
        take_line: function that gets each other line that the commands print, and returns whether it is for itself.
            Others are logged. It is called from any thread, also before the group is constructed.

    Raises:
        LaunchError: a command cannot be started, the slots cannot be divided among the nodes, or the directory of the
            checkpoints cannot be written. `close` was called.
    """

    def __init__(
        self,
        request: LaunchRequest,
        commands: Sequence[Sequence[str]],
        *,
        nodes: int | None = None,
        hosts: Sequence[str] | None = None,
        slot_ids: Sequence[Sequence[int]] | None = None,
        start_seconds: float = _START_SECONDS,
        inherit: Sequence[int] = (),
        reconnect_seconds: float = 0.0,
        launch: str = "",
        adopted_as: float = 0.0,
        take_line: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._take_line = take_line
        self._launch = SharedLaunch(
            log=request.log,
            call=request.call,
            print_line=self._print_line,
            callers=ThreadPoolExecutor(_CALLS_AT_ONCE, thread_name_prefix="det-store-call"),
            request=None if adopted_as else request,
            reconnect_seconds=reconnect_seconds,
            fingerprint=_fingerprint(request) if reconnect_seconds else "",
            adopted_as=adopted_as,
        )
        self._hosts = hosts
        node_count = nodes or len(commands)
        self._slot_ids = slot_ids or [range(request.slots // node_count)] * node_count
        self._give_up_at = time.monotonic() + start_seconds
        self._start_seconds = start_seconds
        self._ordered_at = time.monotonic() if adopted_as else math.inf
        """Time at which all agents were there and were ordered to start the workers."""
        self._kill_at = math.inf
        """Time at which the nodes that are left are killed."""
        # An agent of an earlier launch is not found.
        key = [f"--key={request.key}-{launch or uuid.uuid4().hex[:8]}"] if reconnect_seconds else []
        self._words = [[*command, *key] for command in commands]
        self._inherit = inherit
        self._notice: _Notice | None = None
        self._preempted = False
        self._nodes = [AgentNode(index, self._launch) for index in range(node_count)]
        self._commands: list[AgentCommand] = []
        self._undo = ExitStack()
        try:
            self._marker = None if adopted_as else self._undo.enter_context(mark_mounted_storage(request))
            if slot_ids is None and request.slots % node_count:
                raise LaunchError(
                    f"the trial needs {request.slots} slots, which {node_count} nodes cannot share equally; "
                    "change resources.slots_per_trial"
                )
            self._start_commands(labeled=nodes is not None)
        except BaseException:
            self.close()
            raise

    def wait(self, timeout: float) -> Exit | None:
        end = time.monotonic() + timeout
        while True:
            self._advance()
            if all(node.end for node in self._nodes) and time.monotonic() >= self._settled_at():
                return self._end_or_refuse()
            if (left := end - time.monotonic()) <= 0:
                return None
            self._await_change(left)

    def status(self) -> Status:
        names = [node.name for node in self._nodes]
        phase = Phase.RUNNING if all(node.started for node in self._nodes) else Phase.STARTING
        lost = [self._nodes[index] for index in self.lost_nodes]
        message = f"no connection to {', '.join(node.title for node in lost)}; {lost[0].problem}" if lost else ""
        return Status(phase=phase, nodes=[name for name in names if name], message=message)

    @property
    def lost_nodes(self) -> Sequence[int]:
        """Indexes of the nodes to which there is no connection at the moment, while their workers may train on."""
        return [node.index for node in self._nodes if node.lost_at is not None and not node.end]

    def confirm_end(self, node: int, end: Exit) -> None:
        """Record how a node has ended, because the engine proves that none of its processes is left.

        Args:
            node: one of `lost_nodes`.
            end: its end.
        """
        if node in self.lost_nodes:
            self._nodes[node].finish(end)

    def preempt(self) -> None:
        self._stop(WITHDRAWN)

    def preempt_for(self, cause: Cause, message: str, *, kill_after: float = _SAVE_SECONDS) -> None:
        """Preempt the launch for a reason of the launcher, such as a more urgent trial or the end of a time window.

        Workers are asked to save a checkpoint and stop, as by `preempt`. The end then has this cause and message
        instead of `Cause.WORKERS`, with the exit code of the command, so that the runner starts the trial again. If the
        workers had finished by themselves with code 0, the runner completes the trial nevertheless. If the user stops
        the trial at the same time, the runner does not start it again. A launch whose workers have not been started
        ends at once. An end from before the call, and an earlier call, have precedence.

        It may be called from any thread, and takes effect while `wait` is called.

        Args:
            cause: cause of the end, such as `Cause.PREEMPTED` or `Cause.TIME_LIMIT`.
            message: explanation in one line, which does not repeat the cause.
            kill_after: number of seconds until processes that are left are killed. The ``preemption_timeout`` of the
                config counts from requests of the user only.
        """
        if self._notice is None:
            now = time.monotonic()
            self._notice = _Notice(cause, message, now, now + kill_after)
            self._launch.changed.set()

    def kill(self) -> None:
        if self._launch.request is not None:
            self._withdraw(WITHDRAWN)
        self._kill_at = time.monotonic()
        deadline = time.monotonic() + 2 * _KILL_SECONDS
        while not all(node.end for node in self._nodes) and time.monotonic() < deadline:
            self._advance()
            self._await_change(_TICK)

    def hand_over(self) -> None:
        """Give no more orders. With ``reconnect_seconds``, the workers outlive the connection, which `close` ends."""
        self._launch.is_replaced = True

    def close(self) -> None:
        for command in self._commands:
            command.hang_up()
        for number, seconds in ((signal.SIGTERM, _KILL_SECONDS), (signal.SIGKILL, TERMINATE_SECONDS)):
            deadline = time.monotonic() + seconds
            for command in self._commands:
                command.end_by(deadline, number)
        deadline = time.monotonic() + _KILL_SECONDS
        for command in self._commands:
            command.join(deadline)
        self._launch.callers.shutdown(wait=True, cancel_futures=True)
        self._undo.close()

    @property
    def processes(self) -> Sequence[subprocess.Popen[bytes]]:
        """Processes of the commands, for their ids and exit codes."""
        return [command.process for command in self._commands]

    def terminate(self) -> None:
        """Ask the commands to end at once, by SIGTERM, on which engines withdraw what they have started."""
        for command in self._commands:
            command.terminate()

    def _start_commands(self, *, labeled: bool) -> None:
        """Start the command of each node, or the labeled one of all nodes."""
        launch = self._launch
        survive = [f"--survive={launch.reconnect_seconds}"] if launch.reconnect_seconds else []
        for index, command in enumerate(self._words):
            nodes = self._nodes if labeled else [self._nodes[index]]
            words = [*command, *([_ATTACH] if launch.adopted_as else survive)]
            self._commands.append(AgentCommand(index, words, nodes, self._print_line, self._inherit, labeled=labeled))

    def _print_line(self, text: str) -> None:
        """Log a line that a command has printed, unless it is for `take_line`. Called from any thread."""
        if not self._take_line(text):
            self._launch.log(None, "det", text)

    def _await_change(self, timeout: float) -> None:
        self._launch.changed.wait(min(timeout, _TICK))
        self._launch.changed.clear()

    def _advance(self) -> None:
        """Start the workers once all agents are there, and end the nodes whose time is over."""
        now = time.monotonic()
        for node in self._nodes:
            if node.lost_at is None:
                node.check_life()
            elif not node.end:
                self._reconnect(node, now)
        if self._notice and not self._preempted:
            self._preempted = True
            self._kill_at = min(self._kill_at, self._notice.kill_at)
            self._stop(Exit(code=1, cause=self._notice.cause, message=self._notice.message))
        self._start_in_time(now)
        self._end_in_time(now)

    def _start_in_time(self, now: float) -> None:
        """Start the workers once all agents are there, or withdraw the launch if that takes too long."""
        if self._launch.request is not None and all(node.hello for node in self._nodes):
            self._start(self._launch.request)
            self._launch.request = None  # the code may be large
            self._ordered_at = now
        is_starting = not self.lost_nodes and not all(node.started for node in self._nodes)
        if is_starting and (problem := self._explain_delay(now)):
            self._withdraw(Exit(code=1, cause=Cause.NOT_STARTED, message=problem))

    def _end_in_time(self, now: float) -> None:
        """Kill the nodes that are left after a failure or whose time is over, and then the commands that are left."""
        if any(node.end and _is_failure(node.end) for node in self._nodes):
            self._kill_at = min(self._kill_at, now + (_FAILURE_GRACE if self._launch.request is None else 0.0))
        if now > self._kill_at and not self._launch.is_killed:
            self._launch.is_killed = True
            self._send("kill")
        if now > self._kill_at + _KILL_SECONDS:
            for command in self._commands:
                if not any(node.lost_at for node in self._nodes if node.command is command):  # it connects again
                    command.terminate()

    def _reconnect(self, node: AgentNode, now: float) -> None:
        """Try to reach the agent of a node again. The node is lost once its workers must have ended."""
        command = node.command
        assert node.lost_at is not None
        survive = max(self._launch.reconnect_seconds, messages.SILENCE_SECONDS)  # an agent may notice silence only
        if now > node.lost_at + survive + GRACE + _RECONNECT_MARGIN:
            node.finish(node.describe_loss(f"{node.problem}; no connection for {now - node.lost_at:.0f} s"))
        elif command.process.poll() is None:
            if node.is_welcome:  # until now, messages may have reached the agent
                node.lost_at = now
            if node.is_welcome or now > node.tried_at + _START_SECONDS:
                command.terminate()
        elif now > node.tried_at + _RECONNECT_SECONDS:
            node.tried_at = now
            node.is_welcome = False
            command.hang_up()
            with suppress(LaunchError):  # the next attempt may have a free process
                words = [*self._words[node.index], _ATTACH]
                self._commands[node.index] = AgentCommand(
                    node.index, words, [node], self._print_line, self._inherit, labeled=False
                )

    def _start(self, request: LaunchRequest) -> None:
        greetings = [node.hello or {} for node in self._nodes]
        hosts = self._hosts or [greeting["host"] for greeting in greetings]
        names = self._hosts or [greeting["name"] for greeting in greetings]
        for node, name in zip(self._nodes, names, strict=True):
            node.name = name
        self._send(
            "start",
            key=request.key,
            argv=list(request.argv),
            code=messages.pack_bytes(request.code),
            info={**request.info, "cluster.json": {**request.info["cluster.json"], "master_url": AGENT_URL}},
            env=dict(request.env),
            secrets=dict(request.secrets),
            slot_ids=[list(slots) for slots in self._slot_ids],
            hosts=list(hosts),
            names=list(names),
            port=greetings[0]["port"] if len(hosts) > 1 else None,
            marker=str(self._marker or ""),
            fingerprint=self._launch.fingerprint,
        )

    def _explain_delay(self, now: float) -> str:
        """Return which time limit of the start is over, or "" if none is."""
        if self._launch.request is not None and now > self._give_up_at:
            return f"the nodes were not ready after {self._start_seconds:.0f} s"
        if self._launch.request is None and now > self._ordered_at + _PREPARE_SECONDS:
            return f"the nodes were ready, but the workers were not started within {_PREPARE_SECONDS:.0f} s"
        return ""

    def _send(self, kind: str, **fields: Any) -> None:
        for command in self._commands:
            welcome = any(node.is_welcome for node in self._nodes if node.command is command)
            is_reached = welcome or not self._launch.adopted_as  # others get it later
            if is_reached and not (command.has_ended() or self._launch.is_replaced):
                command.send(kind, **fields)

    def _stop(self, end: Exit) -> None:
        """Ask the workers to stop, or end the launch with this end if they have not been started."""
        if self._launch.request is None:
            self._launch.is_stopping = True
            self._send("preempt")
        else:
            self._withdraw(end)

    def _withdraw(self, end: Exit) -> None:
        self._send("kill")
        for command in self._commands:
            if not any(node.hello for node in command.nodes):
                command.terminate()  # no agent reads the message
        for node in self._nodes:
            node.finish(end)

    def _settled_at(self) -> float:
        """Return the time at which no worker is left, also on nodes that were lost."""
        lost = [node.ended_at for node in self._nodes if node.lost and not node.command.labeled]
        return max(lost) + _LOST_SECONDS if lost and self._launch.request is None else 0.0

    def _end_or_refuse(self) -> Exit:
        """Return the end of the first node that failed, or success, with the cause of a preemption before it.

        A node whose workers would fail again after every restart counts first, as others may fail because of it.

        Raises:
            LaunchError: that node has refused the launch.
        """
        ended = sorted(self._nodes, key=lambda node: node.ended_at)
        ends = [(node, node.end) for node in ended if node.end]
        failures = [(node, end) for node, end in ends if _is_failure(end)]
        node, end = min(failures, key=lambda one: one[1].code != EXIT_DO_NOT_RESTART, default=ends[-1])
        if node.has_refused:
            raise LaunchError(end.message)
        notice = self._notice
        if notice and notice.given_at <= node.ended_at and end.cause is Cause.WORKERS:
            return replace(end, cause=notice.cause, message=notice.message)
        return end


def _is_failure(end: Exit) -> bool:
    return bool(end.code) or end.cause is not Cause.WORKERS


def _fingerprint(request: LaunchRequest) -> str:
    """Return a text that is the same for requests of one run with the same code, config and number of slots."""
    trial = {name: value for name, value in request.info.get("trial.json", {}).items() if name != "steps_completed"}
    content = json.dumps([hashlib.sha256(request.code).hexdigest(), trial, request.slots], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()
