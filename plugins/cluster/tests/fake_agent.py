"""Agent of a node whose messages a test reads and writes, in place of the program behind a pipe."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from det_cluster import _agent_messages as messages


class FakeAgent:
    """Agent with a command that connects its stdin and stdout with named pipes.

    Args:
        directory: directory for the pipes.
        index: index of its node.
    """

    def __init__(self, directory: Path, index: int = 0) -> None:
        orders, replies = directory / f"orders-{index}", directory / f"replies-{index}"
        for path in (orders, replies):
            os.mkfifo(path)
        copy = 'exec 3<&0; cat <&3 >"$0" 2>/dev/null & exec cat <"$1" 3<&-'
        self.command = ["sh", "-c", copy, str(orders), str(replies)]
        """Command of the node. The process that copies the orders holds none of its pipes but stdin."""
        self._index = index
        self._orders = os.open(orders, os.O_RDWR)  # which does not wait for the other side
        self.replies = os.fdopen(os.open(replies, os.O_RDWR), "wb", buffering=0)
        """Output of the agent."""
        self._messages = self._read()

    def greet(self, **changes: Any) -> None:
        """Introduce the node."""
        names = {"name": f"n{self._index}", "host": f"h{self._index}"}
        fields = {"protocol": messages.OLDEST_PROTOCOL, "version": "1", "port": 4000 + self._index}
        self.say("hello", **{**names, **fields, **changes})

    def say(self, kind: str, **fields: Any) -> None:
        """Send a message to the runner."""
        self.replies.write(b"".join(messages._lines_of({"kind": kind, **fields})))

    def end(self, code: int = 0, cause: str = "workers", message: str = "", **more: Any) -> None:
        """Report the end of the workers."""
        self.say("exit", code=code, cause=cause, message=message, **more)

    def order(self, kind: str) -> dict[str, Any]:
        """Return the next message of this kind from the runner. Before it, there may be signs of life only."""
        for message in self._messages:
            if message["kind"] != "alive":
                assert message["kind"] == kind, message
                break
        return message

    def rest(self) -> list[dict[str, Any]]:
        """Return the messages that the runner has already sent."""
        os.set_blocking(self._orders, False)
        with suppress(BlockingIOError):
            return [one for one in messages.read_messages([os.read(self._orders, 1 << 16)]) if isinstance(one, dict)]
        return []

    def hang_up(self) -> None:
        """Close the output of the agent, which ends its command."""
        self.replies.close()

    def close(self) -> None:
        """Close the pipes."""
        self.replies.close()
        os.close(self._orders)

    def _read(self) -> Iterator[dict[str, Any]]:
        for message in messages.read_messages(self._lines()):
            assert isinstance(message, dict)
            yield message

    def _lines(self) -> Iterator[bytes]:
        rest = b""
        while select.select([self._orders], [], [], 60)[0]:
            *lines, rest = (rest + os.read(self._orders, 1 << 16)).split(b"\n")
            yield from lines
        raise AssertionError("no order of the runner within 60 s")
