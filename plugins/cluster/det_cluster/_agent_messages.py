"""Messages between a runner and its node agents, as lines of ASCII text.

A message is a JSON object. It is cut into lines of at most 900 bytes, because some engines tear longer lines apart
(``srun --label`` those above 1 KiB). Each line begins with ``det:`` and a mark, ``+`` if the message continues in the
next line and ``.`` if it ends. Other lines are output of programs on the way, such as the banner of ssh.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import IO, Any

from det_core.errors import LaunchError
from det_core.tracking.remote import MAX_BODY_BYTES

PROTOCOLS = (1, 2)
"""Versions of the messages that this release knows, of which the last is its own. Version 2 can connect again."""
OLDEST_PROTOCOL = PROTOCOLS[0]
"""Version that a release without ``protocols`` in its ``hello`` expects."""
BEAT_SECONDS = 10.0
"""Seconds between two messages of a living side."""
SILENCE_SECONDS = 60.0
"""Seconds without a message after which an agent gives up its runner."""
MAX_MESSAGE = MAX_BODY_BYTES // 3 * 4 + (1 << 20)
"""Maximum size of a message in bytes, so that the largest call or answer of the tracking store fits as base64."""
_CONTINUES, _ENDS = b"det:+", b"det:."
_MOST = 900 - len(_ENDS) - 1
"""Maximum number of bytes of a message in one line."""
_MOST_WAITING = 100
"""Number of messages beyond which `MessageWriter.await_room` waits."""


class MessageWriter:
    """Writer of messages to a stream, in a thread that also sends signs of life.

    A stream that the other side does not read holds up this thread only. Once the reader is gone, messages are dropped.

    Args:
        stream: the stream, which the thread closes at its end.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._waiting: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._is_closing = False
        self._ended = threading.Event()
        threading.Thread(target=self._write, name="det-messages", daemon=True).start()

    def send(self, kind: str, **fields: Any) -> None:
        """Add a message. Never wait."""
        with self._changed:
            if not self._is_closing:
                self._waiting.append({"kind": kind, "at": time.monotonic(), **fields})
                self._changed.notify_all()

    def await_room(self) -> None:
        """Wait while many messages wait, so that a source of any number of them is not faster than the reader."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting) < _MOST_WAITING or self._is_closing)

    def close(self) -> None:
        """Write what is left, and then close the stream. Later messages are dropped."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()

    def abandon(self) -> None:
        """Drop what is left, because nobody reads it."""
        with self._changed:
            self._waiting.clear()
        self.close()
        self._ended.set()

    def join(self, timeout: float | None = None) -> None:
        """Wait until everything is written or abandoned."""
        self._ended.wait(timeout)

    def _write(self) -> None:
        while sent := self._take():
            with suppress(OSError):
                self._stream.writelines(line for message in sent for line in _lines_of(message))
                self._stream.flush()
        with suppress(OSError):
            self._stream.close()
        self._ended.set()

    def _take(self) -> list[dict[str, Any]]:
        """Wait for messages and return them. Return a sign of life if there is none in time, and nothing at the end."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._waiting or self._is_closing, BEAT_SECONDS):
                return [{"kind": "alive", "at": time.monotonic()}]
            taken, self._waiting = self._waiting, []
            self._changed.notify_all()
            return taken


def choose_protocol(hello: Mapping[str, Any]) -> int | None:
    """Return the newest version that the agent with this ``hello`` and this release know, or None if there is none."""
    known = hello.get("protocols", [OLDEST_PROTOCOL])  # of the release that has one protocol
    return max((version for version in PROTOCOLS if version in known), default=None)


class MessageReader:
    """Reader of the lines of one stream, which joins the parts of messages.

    Args:
        acknowledge: called after the first line of a message that has more. It sends a short message, with which TCP
            confirms the first line. Otherwise, engines that wait for this before they send the rest (Nagle's algorithm,
            ``srun``) lose 40 ms for each such message.
    """

    def __init__(self, acknowledge: Callable[[], None]) -> None:
        self._acknowledge = acknowledge
        self._parts: list[bytes] = []
        self._size = 0

    def take_line(self, line: bytes) -> dict[str, Any] | str | None:
        """Return the message that the line ends, or the line as text if it belongs to none. None in a message.

        Raises:
            LaunchError: the message is larger than `MAX_MESSAGE` or malformed.
        """
        mark, part = line[: len(_ENDS)], line[len(_ENDS) :].rstrip(b"\r\n")
        if mark not in (_CONTINUES, _ENDS):
            return line.decode("utf-8", "replace").rstrip("\r\n")
        self._parts.append(part)
        self._size += len(part)
        if self._size > MAX_MESSAGE:
            raise LaunchError(f"a node agent's message has more than {MAX_MESSAGE >> 20} MiB")
        if mark == _CONTINUES:
            if len(self._parts) == 1:
                self._acknowledge()
            return None
        content = b"".join(self._parts)
        self._parts, self._size = [], 0
        return _parse(content)


def read_messages(
    lines: Iterable[bytes], acknowledge: Callable[[], None] = lambda: None
) -> Iterator[dict[str, Any] | str]:
    """Yield the messages of a stream, and each other line as text.

    Args:
        lines: lines of the stream.
        acknowledge: as for `MessageReader`.

    Raises:
        LaunchError: as `MessageReader.take_line`.
    """
    reader = MessageReader(acknowledge)
    for line in lines:
        message = reader.take_line(line)
        if message is not None:
            yield message


def pack_bytes(content: bytes) -> str:
    """Return bytes as text for a message."""
    return base64.b64encode(content).decode("ascii")


def unpack_bytes(text: str) -> bytes:
    """Return the bytes that `pack_bytes` made text of."""
    return base64.b64decode(text, validate=True)


def _lines_of(message: dict[str, Any]) -> Iterator[bytes]:
    content = json.dumps(message).encode("ascii")
    for start in range(0, len(content), _MOST):
        end = start + _MOST
        yield (_CONTINUES if end < len(content) else _ENDS) + content[start:end] + b"\n"


def _parse(content: bytes) -> dict[str, Any]:
    try:
        message = json.loads(content)
    except ValueError as error:
        raise LaunchError(f"a message between runner and node agent is damaged: {error}") from error
    if not (isinstance(message, dict) and isinstance(message.get("kind"), str)):
        raise LaunchError(f"a message between runner and node agent is no object with a kind: {message!r:.100}")
    return message
