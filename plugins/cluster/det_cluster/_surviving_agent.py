"""Node agent that outlives its connection with the runner for some time, in which the workers train on.

``python -m det_cluster.agent_program --key KEY`` starts it as a program, and connects the runner with it.

The runner may connect again, and then gets what it missed. Calls have numbers, so those without an answer are repeated.
So may another runner that has taken over the experiment, unless a later one has done so before (`Launcher.adopt`).
Reports of metrics are kept in a file meanwhile, and count as done for the worker. All other calls wait, and so does
what they belong to, such as a checkpoint. Lines of the log are kept, too.

The time counts from when the runner sent its last message, as far as this node can prove it, on a clock that a suspend
does not stop. A message that the network has delayed therefore gives no new time. Once it is over, the workers end as
if the runner was lost.
"""

from __future__ import annotations

import json
import queue
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from det_cluster import _agent_messages as messages
from det_cluster import agent_program
from det_cluster._agent_connector import is_same_user, listen_for_runners
from det_cluster._kept_calls import KeptCalls
from det_core.errors import TrackingError
from det_core.interfaces.launcher import Exit
from det_core.tracking.remote import AGENT_SURVIVES, RETURNED_NOTHING

LOG = "log"
"""Method of the calls with lines of the log, which the runner itself executes. Their body has a JSON value for each."""
_REPORTS = frozenset(
    ("report_metrics", "report_system_metrics", "set_runner_state", "set_trial_progress", "set_trial_total")
)
"""Methods of the tracking store that return nothing, and that a worker may repeat later without harm."""
_MAX_REPORT_BYTES = 256 << 20
_MAX_LOG_BYTES = 64 << 20
"""Sizes of the files. If one is full, the workers wait."""
_LINES_AT_ONCE = 500
_REFUSAL_SECONDS = 5.0
"""Seconds to wait until an earlier runner has the message that it was replaced."""
_DISK_SECONDS = 1.0
"""Seconds between two attempts to write to a full disk."""


class SurvivingAgent(agent_program.AgentProgram):
    """Node agent behind a socket, to which one runner after the other connects.

    Args:
        seconds: seconds for which the workers train on without the runner.
        options: as for `AgentProgram`.
    """

    def __init__(self, seconds: float, **options: Any) -> None:
        super().__init__(None, **options)
        self._seconds = seconds
        self._identity = uuid.uuid4().hex
        self._link = threading.RLock()
        """Held to change or use the connection, or what depends on it."""
        self._connection: socket.socket | None = None
        """Connection of the runner, which has welcomed this agent on it."""
        self._runner = 0.0
        """Number of the runner."""
        self._request = ""
        """Fingerprint of the launch request."""
        self._lease_at = _read_clock()
        self._welcomed: tuple[float, float] | None = None
        """Times by the clocks of this node and of the runner, of which the first is the earlier one."""
        self._unanswered: dict[int, dict[str, Any]] = {}
        self._in_flight: set[int] = set()
        """Numbers of reports that workers wait for. They are kept if the connection is lost."""
        self._reports, self._lines = KeptCalls(_MAX_REPORT_BYTES), KeptCalls(_MAX_LOG_BYTES)
        self._refusal: bytes | None = None
        """Error of a kept report, which is the answer to all later calls."""
        self._end: dict[str, Any] | None = None
        self._is_released = threading.Event()
        """Set once the runner knows the end of the workers."""

    def serve(self, server: socket.socket) -> None:
        """Accept runners until the workers have ended, or the time without a runner is over. Never return."""
        for kept, most, deliver in (
            (self._reports, 1, self._deliver_report),
            (self._lines, _LINES_AT_ONCE, self._deliver_lines),
        ):
            threading.Thread(target=self._drain, args=(kept, most, deliver), name="det-kept", daemon=True).start()
        threading.Thread(target=self._watch_runner, name="det-runner-watch", daemon=True).start()
        while True:
            connection, _ = server.accept()
            if is_same_user(connection):
                threading.Thread(target=self.talk, args=(connection,), name="det-runner", daemon=True).start()
            else:
                connection.close()

    def talk(self, connection: socket.socket) -> None:
        """Obey the runner on a new connection until it ends. It replaces the present one once the runner has answered.

        An earlier runner gets no answer any more, so two of them never talk at the same time.
        """
        connection.settimeout(messages.SILENCE_SECONDS)
        writer, greeted_at = messages.MessageWriter(connection.makefile("wb")), _read_clock()
        state = {"agent": self._identity, "request": self._request, "started": self._agent is not None}
        writer.send("hello", **self.introduction(), **state)
        with suppress(OSError, ValueError), connection.makefile("rb") as lines:
            welcome = next(messages.read_messages(lines), None)
            connection.settimeout(None)
            if isinstance(welcome, dict) and self._take_runner(welcome, connection, writer, greeted_at):
                self.follow(lines)
        self._lose_connection(connection)
        writer.abandon()

    def obey(self, message: Mapping[str, Any]) -> None:
        super().obey(message)
        if self._welcomed and "at" in message:
            here, there = self._welcomed
            self._lease_at = max(self._lease_at, here + message["at"] - there)

    def lose_runner(self) -> None:
        self._lost.set()
        self._reports.close()
        self._lines.close()
        super().lose_runner()

    def _send(self, kind: str, **fields: Any) -> None:
        with self._link:
            if self._writer:
                super()._send(kind, **fields)

    def _take_runner(
        self,
        message: Mapping[str, Any],
        connection: socket.socket,
        writer: messages.MessageWriter,
        greeted_at: float,
    ) -> bool:
        """Obey the runner that has sent a message on a connection from now on, and return whether it may be obeyed."""
        with self._link:
            if message["kind"] != "welcome":
                return False
            if message.get("runner", 0.0) < self._runner:
                writer.send("replaced")
                writer.close()
                writer.join(_REFUSAL_SECONDS)
                return False
            self._disconnect()
            self._runner = message.get("runner", 0.0)
            self._connection, self._writer = connection, writer
            self._heard_at, self._welcomed = time.monotonic(), (greeted_at, message["at"])
            self._lease_at = max(self._lease_at, greeted_at)
            if self._agent:  # it may have started since the greeting
                self._send("started")
            for call in self._unanswered.values():
                self._send("call", **call)
            if self._end:
                self._send("exit", **self._end)
            return True

    def _start(self, message: Mapping[str, Any]) -> None:
        self._request = message.get("fingerprint", "")
        super()._start(message)

    def _release(self, message: Mapping[str, Any]) -> None:
        self._is_released.set()

    def _variables(self) -> Mapping[str, str]:
        return {AGENT_SURVIVES: str(self._seconds)}

    def _grace(self) -> float:
        """Return the seconds that workers without a runner have to end. A node that was suspended has spent them."""
        return max(0.0, self._lease_at + self._seconds + agent_program.GRACE - _read_clock())

    def _send_line(self, rank: int | None, stream: str, text: str) -> None:
        record = json.dumps([rank, stream, text]).encode()
        while not self._lost.is_set():
            try:
                self._lines.add(record)
                return
            except OSError:  # the disk is full, so the workers wait
                time.sleep(_DISK_SECONDS)

    def _relay_call(self, method: str, body: bytes) -> bytes:
        is_report = method in _REPORTS
        if is_report and (self._writer is None or len(self._reports)):
            self._reports.add(_pack(method, body))
            self._require_runner(method)
            return RETURNED_NOTHING
        if not is_report:
            self._reports.await_empty()
        return self._refusal or self._ask(method, body, may_be_kept=is_report)

    def _ask(self, method: str, body: bytes, *, may_be_kept: bool = False) -> bytes:
        """Send a call on each connection until there is an answer. Raises TrackingError once the runner is lost."""
        number, answers = next(self._calls), queue.SimpleQueue[Mapping[str, Any] | None]()
        call = {"id": number, "method": method, "body": messages.pack_bytes(body)}
        with self._link:
            self._answers[number], self._unanswered[number] = answers, call
            if may_be_kept:
                self._in_flight.add(number)
            self._send("call", **call)
        try:
            self._require_runner(method)
            answer = answers.get()
        finally:
            with self._link:
                del self._answers[number]
                self._unanswered.pop(number, None)
                self._in_flight.discard(number)
        if answer is None:
            self._require_runner(method)
        assert answer
        return messages.unpack_bytes(answer["body"])

    def _require_runner(self, method: str) -> None:
        if self._lost.is_set():
            raise TrackingError(f"the runner is gone, so {method} cannot be recorded")

    def _report_end(self, end: Exit, *, refused: bool) -> None:
        self._lines.await_empty()
        self._reports.await_empty()
        with self._link:
            self._end = {"code": end.code, "cause": end.cause.value, "message": end.message, "refused": refused}
            self._send("exit", **self._end)
        while not self._is_released.wait(agent_program._TICK) and not self._lost.is_set():
            pass

    def _watch_runner(self) -> None:
        while not self._lost.wait(agent_program._TICK):
            is_silent = time.monotonic() - self._heard_at > messages.SILENCE_SECONDS
            if is_silent and self._connection:
                self._lose_connection(self._connection)
            is_over = is_silent
            if self._is_ordered:  # a runner that connects, but does not answer, gives no new time
                is_over = self._writer is None and _read_clock() - self._lease_at > self._seconds
            if is_over:
                self.lose_runner()

    def _lose_connection(self, connection: socket.socket) -> None:
        with self._link:
            if self._connection is connection:
                self._disconnect()
            if not self._is_ordered:
                self.lose_runner()
        connection.close()

    def _disconnect(self) -> None:
        """Close the connection, and keep the reports that were sent on it without an answer."""
        if self._connection:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)
        if self._writer:
            self._writer.abandon()
        self._connection = self._writer = None
        for number in self._in_flight & self._unanswered.keys():
            call = self._unanswered[number]
            record = _pack(call["method"], messages.unpack_bytes(call["body"]))
            with suppress(OSError):  # the disk is full, so the worker waits
                if self._reports.add(record, waits=False):
                    del self._unanswered[number]
                    self._answers[number].put({"body": messages.pack_bytes(RETURNED_NOTHING)})

    def _drain(self, kept: KeptCalls, most: int, deliver: Callable[[list[bytes]], None]) -> None:
        with suppress(TrackingError):  # the runner is lost
            while records := kept.await_records(most):
                deliver(records)
                kept.remove(records)

    def _deliver_report(self, records: list[bytes]) -> None:
        method, _, body = records[0].partition(b"\n")
        answer = self._ask(method.decode(), body)
        if answer != RETURNED_NOTHING:
            self._refusal = answer

    def _deliver_lines(self, records: list[bytes]) -> None:
        self._ask(LOG, b"\n".join(records))


def main(argv: Sequence[str]) -> None:
    """Run the agent, with the arguments of `det_cluster.agent_program`."""
    args, options = agent_program.parse_arguments(argv)
    agent = SurvivingAgent(args.survive, **options)
    agent_program.handle_signals(agent.stop_on_signal)
    agent.serve(listen_for_runners(args.key, args.node))


def _pack(method: str, body: bytes) -> bytes:
    return b"%b\n%b" % (method.encode(), body)


def _read_clock() -> float:
    """Return the seconds since the start of this machine, with those in which it was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


if __name__ == "__main__":
    main(sys.argv[1:])
