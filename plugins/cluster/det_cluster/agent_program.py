"""Node agent as a program, ``python -m det_cluster.agent_program``, which any engine can start on its nodes.

The runner sends a launch request and later orders to stdin. The agent sends the output of the workers, their calls of
the tracking store and their end to stdout (`det_cluster._agent_messages`). It needs neither a shared file system
nor an open port. `det_cluster.agent_group` is the runner's side.

SIGTERM (preemption) and SIGURG, SIGUSR1 and SIGUSR2 (the time limit is near) ask the workers to save a checkpoint and
stop, as a request of the runner does. If stdin ends or the runner is silent for a minute, the workers end within 10 s.
With ``--survive``, they train on for some time, in which the runner may connect again (`det_cluster._surviving_agent`).
Neither this nor the signs of life wait for stdout, which is full while the runner does not read.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and not getattr(sys.flags, "safe_path", sys.flags.isolated):
    sys.path.pop(0)  # -m imports modules from the present directory, and that of the user may contain a queue.py

import argparse
import itertools
import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from det_cluster import _agent_messages as messages
from det_cluster._agent_connector import connect_to_agent, relay
from det_core.errors import LaunchDelayed, LaunchError, TrackingError
from det_core.interfaces.launcher import Cause, Exit, LaunchRequest
from det_core.launch.engine_signals import ENGINE_VARIABLES, shield_shell
from det_core.launch.gpu_slots import count_gpus, gpu_variables
from det_core.launch.network import find_adjacent_free_ports
from det_core.launch.node_agent import AllocatedNode, NodeAgent, explain_start_errors
from det_core.launch.trial_lock import TrialLock
from det_core.launch.worker_environment import thread_limit_variables
from det_core.version import __version__

_CALL_SECONDS = 120.0
"""Seconds to wait for the answer to a call of the tracking store. The runner waits up to 60 s for its database."""
GRACE = 8.5
"""Seconds until workers that lost the runner are killed. They take up to 8 s to end (`NodeAgent.disconnect`)."""
_TICK = 0.2
_SIGNALS: Mapping[int, Cause] = {
    signal.SIGTERM: Cause.PREEMPTED,
    **dict.fromkeys((signal.SIGURG, signal.SIGUSR1, signal.SIGUSR2), Cause.TIME_LIMIT),
}
"""Causes of ends that engines announce by signals."""


class AgentProgram:
    """Node agent behind two pipes.

    Args:
        writer: writer of messages to the runner, or None if there is no connection.
        node: index of this node.
        name: name of this node in the engine, or None for that of its host.
        host: address at which the other nodes reach this one, or None for its host name.
        cpus: number of cores that the workers of this node share, or None if it is unknown.
    """

    def __init__(
        self,
        writer: messages.MessageWriter | None,
        node: int,
        name: str | None = None,
        host: str | None = None,
        cpus: int | None = None,
    ) -> None:
        self._writer = writer
        self._node = node
        self._cpus = cpus
        self._host = host or socket.gethostname()
        self._name = name or self._host
        self._agent: NodeAgent | None = None
        self._heard_at = time.monotonic()
        self._lost = threading.Event()
        self._signal: int | None = None
        self._preempting = False
        self._is_ordered = False
        """Whether the runner has sent the launch request."""
        self._calls = itertools.count()
        self._answers: dict[int, queue.SimpleQueue[Mapping[str, Any] | None]] = {}

    def greet(self) -> None:
        """Introduce this node to the runner."""
        self._send("hello", **self.introduction())
        threading.Thread(target=self._watch_runner, name="det-runner-watch", daemon=True).start()

    def introduction(self) -> dict[str, Any]:
        """Return what the runner has to know about this node."""
        return {
            "protocol": messages.OLDEST_PROTOCOL,
            "protocols": list(messages.PROTOCOLS),
            "version": __version__,
            "name": self._name,
            "host": self._host,
            "port": find_adjacent_free_ports(),
        }

    def acknowledge(self) -> None:
        """Send a short message."""
        self._send("alive")

    def stop_on_signal(self, number: int, frame: FrameType | None) -> None:
        """Ask the workers to stop, because the engine has sent a signal."""
        self._signal = self._signal or number

    def follow(self, lines: Iterable[bytes]) -> None:
        """Carry out the messages of the runner. Parts of one are signs of life, too, as code may take minutes."""

        def hear() -> Iterator[bytes]:
            for line in lines:
                self._heard_at = time.monotonic()
                yield line

        for message in messages.read_messages(hear(), self.acknowledge):
            if isinstance(message, dict):
                self.obey(message)

    def obey(self, message: Mapping[str, Any]) -> None:
        """Carry out a message of the runner."""
        if message.get("node", self._node) == self._node:
            getattr(self, _ORDERS[message["kind"]])(message)

    def lose_runner(self) -> None:
        """Let the workers save a checkpoint and end, because the runner is gone."""
        self._lost.set()
        if self._writer:
            self._writer.abandon()
        for waiting in list(self._answers.values()):
            waiting.put(None)
        if self._agent is None:
            os._exit(1)  # nothing was started

    def _send(self, kind: str, **fields: Any) -> None:
        assert self._writer
        self._writer.send(kind, **fields)

    def _start(self, message: Mapping[str, Any]) -> None:
        self._is_ordered = True
        request = LaunchRequest(
            key=message["key"],
            argv=shield_shell(message["argv"]),
            code=messages.unpack_bytes(message["code"]),
            info=message["info"],
            slots=sum(map(len, message["slot_ids"])),
            env=message["env"],
            secrets=message["secrets"],
            log=self._send_line,
            call=self._relay_call,
        )
        node = AllocatedNode(
            name=message["names"][self._node],
            hosts=message["hosts"],
            node=self._node,
            slot_counts=[len(slots) for slots in message["slot_ids"]],
            slot_ids=message["slot_ids"][self._node],
            port=message["port"],
        )
        threading.Thread(target=self._run, args=(request, node, message.get("marker", "")), name="det-run").start()

    def _run(self, request: LaunchRequest, node: AllocatedNode, marker: str) -> None:
        """Run the workers, report their end, and end this process."""
        is_refused = False
        try:
            if marker and not Path(marker).exists():
                from det_cluster.mounted_storage import explain_unmounted_storage  # it imports the config

                raise LaunchError(explain_unmounted_storage(node.name))
            end = self._run_workers(request, node)
        except Exception as error:  # noqa: BLE001  (it would end this thread only, and the launch would go on for ever)
            cause = Cause.NODE_LOST if self._agent else Cause.NOT_STARTED
            reason = str(error) if isinstance(error, LaunchError) else f"{type(error).__name__}: {error}"
            end = Exit(code=1, cause=cause, message=reason)
            is_refused = isinstance(error, LaunchError) and not (self._agent or isinstance(error, LaunchDelayed))
        self._report_end(end, refused=is_refused)
        os._exit(0)  # the main thread waits for stdin; guards end the processes that an error has left behind

    def _report_end(self, end: Exit, *, refused: bool) -> None:
        """Report the end of the workers, and wait until it is written."""
        assert self._writer
        self._send("exit", code=end.code, cause=end.cause.value, message=end.message, refused=refused)
        self._writer.close()
        self._writer.join()

    def _run_workers(self, request: LaunchRequest, node: AllocatedNode) -> Exit:
        slots, gpus = node.slot_ids, count_gpus()
        if 0 < gpus <= max(slots):
            raise LaunchError(f"{node.name} has {gpus} GPUs, but the launch needs the slots {list(slots)} there")
        threads = thread_limit_variables(len(slots), self._cpus) if self._cpus or len(slots) > 1 else {}
        environment = {**ENGINE_VARIABLES, **gpu_variables(slots), **threads, **self._variables()}
        with closing(self._lock_trial(f"{request.key}-node-{self._node}")) as lock:
            self._agent = agent = NodeAgent(request, node, env=environment, inherit=[lock.descriptor])
            lock.hand_over()  # the processes have inherited it
            self._send("started")
            return self._watch(agent)

    def _variables(self) -> Mapping[str, str]:
        """Return variables of the workers that depend on the connection."""
        return {}

    def _grace(self) -> float:
        """Return the seconds that workers without a runner have to end."""
        return GRACE

    def _lock_trial(self, key: str) -> TrialLock:
        """Wait until the processes of an earlier launch of the trial on this node are gone."""
        with explain_start_errors("the trial"):
            lock = TrialLock(key)
        while not lock.try_to_lock():
            time.sleep(_TICK)
        return lock

    def _preempt(self, message: Mapping[str, Any]) -> None:
        self._preempting = True

    def _kill(self, message: Mapping[str, Any]) -> None:
        if self._agent:
            self._agent.kill()
        else:
            os._exit(1)

    def _answer(self, message: Mapping[str, Any]) -> None:
        if waiting := self._answers.get(message["id"]):
            waiting.put(message)

    def _ignore(self, message: Mapping[str, Any]) -> None:
        """Do nothing, because any message shows that the runner lives."""

    def _send_line(self, rank: int | None, stream: str, text: str) -> None:
        assert self._writer
        self._writer.await_room()
        self._send("log", rank=rank, stream=stream, text=text)

    def _relay_call(self, method: str, body: bytes) -> bytes:
        number = next(self._calls)
        answers: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
        self._answers[number] = answers
        try:
            if not self._lost.is_set():
                self._send("call", id=number, method=method, body=messages.pack_bytes(body))
                if answer := answers.get(timeout=_CALL_SECONDS):
                    return messages.unpack_bytes(answer["body"])
        except queue.Empty:
            raise TrackingError(f"the runner has not answered {method} for {_CALL_SECONDS:.0f} s") from None
        finally:
            del self._answers[number]
        raise TrackingError(f"the runner is gone, so {method} cannot be recorded")

    def _watch_runner(self) -> None:
        """Give up the runner once it is silent for too long."""
        while not self._lost.wait(_TICK):
            if time.monotonic() - self._heard_at > messages.SILENCE_SECONDS:
                self.lose_runner()

    def _watch(self, agent: NodeAgent) -> Exit:
        """Pass requests to stop on to the workers, and return their end."""
        kill_at: float | None = None
        preempted = False
        while (end := agent.wait(_TICK)) is None:
            if (self._signal or self._preempting) and not preempted:
                preempted = True
                agent.preempt()
            if self._lost.is_set() and kill_at is None:
                kill_at = time.monotonic() + self._grace()
                agent.disconnect()
            if kill_at and time.monotonic() > kill_at:
                agent.kill()
        agent.close()
        if self._signal and end.cause is Cause.WORKERS:
            received = f"the node's agent received {signal.Signals(self._signal).name}"
            end = replace(end, cause=_SIGNALS[self._signal], message=received)
        return end


_ORDERS = {
    "start": "_start",
    "preempt": "_preempt",
    "kill": "_kill",
    "answer": "_answer",
    "alive": "_ignore",
    "bye": "_release",
}
"""Method for each kind of message of the runner."""


def parse_arguments(argv: Sequence[str]) -> tuple[argparse.Namespace, dict[str, Any]]:
    """Return the arguments of an agent, and those of `AgentProgram` among them."""
    parser = argparse.ArgumentParser(
        "python -m det_cluster.agent_program", description="Agent of one node. Launchers start it, not users."
    )
    parser.add_argument("--node", type=int, default=0, metavar="I", help="index of this node, from 0 (default: 0)")
    parser.add_argument("--name", metavar="NAME", help="name of this node in the engine (default: its host)")
    parser.add_argument("--host", help="address at which other nodes reach this one (default: its host name)")
    parser.add_argument(
        "--cpus", type=int, metavar="N", help="CPU cores that the workers share (default: those of this process)"
    )
    parser.add_argument("--key", metavar="KEY", help="key of the launch, for an agent that outlives its connection")
    parser.add_argument(
        "--survive", type=float, metavar="SECONDS", help="seconds for which this agent outlives its connection"
    )
    parser.add_argument("--attach", action="store_true", help="connect to such an agent, which has been started")
    args = parser.parse_args(argv)
    return args, {name: getattr(args, name) for name in ("node", "name", "host", "cpus")}


def handle_signals(handler: Any) -> None:
    """Let a function handle the signals of the engine, and ignore those of a terminal."""
    for number in _SIGNALS:
        signal.signal(number, handler)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def main(argv: Sequence[str]) -> int:
    """Run the agent of one node until its workers end or the runner is gone. Return the exit code.

    With a key, the agent is another process, with which this one connects the runner.
    """
    args, options = parse_arguments(argv)
    if args.key:
        handle_signals(signal.SIG_IGN)  # an engine may signal all processes of a node
        start = [] if args.attach else [sys.executable, "-m", "det_cluster._surviving_agent", *argv]
        return _connect(args.key, args.node, start)
    # Other output, such as that of a library, must not mix with the messages.
    writer = messages.MessageWriter(os.fdopen(os.dup(sys.stdout.fileno()), "wb"))
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    program = AgentProgram(writer, **options)
    handle_signals(program.stop_on_signal)
    program.greet()
    try:
        with suppress(OSError):
            program.follow(sys.stdin.buffer)
    finally:
        program.lose_runner()
    return 1


def _connect(key: str, node: int, start: Sequence[str]) -> int:
    """Connect this process's stdin and stdout with the agent of a node."""
    connection = connect_to_agent(key, node, start)
    if connection:
        relay(connection)
        return 0
    writer = messages.MessageWriter(sys.stdout.buffer)
    writer.send("gone")
    writer.close()
    writer.join()
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
