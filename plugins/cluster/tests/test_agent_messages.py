"""Messages between a runner and its node agents."""

from __future__ import annotations

import os
import runpy
from typing import Any

import pytest
from det_cluster import _agent_messages as messages
from det_cluster._agent_messages import MessageWriter, read_messages

from det_core.errors import LaunchError
from det_core.tracking import remote


def written(*texts: str) -> list[bytes]:
    """Return the lines that a writer writes until it is closed."""
    read, write = os.pipe()
    writer = MessageWriter(os.fdopen(write, "wb"))
    for text in texts:
        writer.send("log", text=text)
    writer.close()
    with os.fdopen(read, "rb") as stream:
        return stream.readlines()


@pytest.mark.parametrize(("size", "acknowledged"), [(10, 0), (3000, 1)])
def test_the_first_line_of_a_long_message_is_acknowledged(size: int, acknowledged: int) -> None:
    acknowledgements: list[int] = []
    lines = written(*["x" * size] * 2)
    found = list(read_messages([*lines, b"banner\n"], lambda: acknowledgements.append(1)))
    *sent, banner = found
    assert [(one["kind"], one["text"]) for one in sent if isinstance(one, dict)] == [("log", "x" * size)] * 2
    assert banner == "banner"
    assert len(acknowledgements) == 2 * acknowledged
    assert max(map(len, lines)) <= 900


def test_messages_are_short_lines() -> None:
    lines = written("ä\n" * 5000)
    assert max(map(len, lines)) <= 900
    assert [message["text"] for message in messages.read_messages(lines) if isinstance(message, dict)] == ["ä\n" * 5000]


@pytest.mark.parametrize(
    ("line", "message"),
    [(b"det:.{}\n", "no object with a kind"), (b"det:.[1\n", "is damaged"), (b"det:.[]\n", "no object with a kind")],
)
def test_damaged_messages_are_refused(line: bytes, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        list(messages.read_messages([line]))


def test_the_largest_answer_of_the_tracking_store_fits_into_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that is too large ends the connection to the node."""
    monkeypatch.setattr(remote, "MAX_BODY_BYTES", 3 << 20)
    small = runpy.run_path(messages.__file__)

    def transfer(size: int) -> list[dict[str, Any]]:
        body = small["pack_bytes"](bytes(size))
        return list(small["read_messages"](small["_lines_of"]({"kind": "answer", "id": 1, "body": body})))

    (answer,) = transfer(3 << 20)
    assert small["unpack_bytes"](answer["body"]) == bytes(3 << 20)
    with pytest.raises(LaunchError, match="more than 5 MiB"):
        transfer(4 << 20)


def test_endless_messages_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MAX_MESSAGE", 1 << 20)
    with pytest.raises(LaunchError, match="more than 1 MiB"):
        list(messages.read_messages(b"det:+" + b"x" * 890 + b"\n" for _ in range(10_000)))
