"""Messages between a runner and its node agents."""

from __future__ import annotations

import io

import pytest

from det_core.launch._agent_messages import MessageWriter, read_messages


@pytest.mark.parametrize(("size", "acknowledged"), [(10, 0), (3000, 1)])
def test_the_first_line_of_a_long_message_is_acknowledged(size: int, acknowledged: int) -> None:
    stream, acknowledgements = io.BytesIO(), []
    writer = MessageWriter(stream)
    for _ in range(2):
        writer.send("log", text="x" * size)
    lines = [*stream.getvalue().splitlines(keepends=True), b"banner\n"]
    found = list(read_messages(lines, lambda: acknowledgements.append(1)))
    assert found == [{"kind": "log", "text": "x" * size}] * 2 + ["banner"]
    assert len(acknowledgements) == 2 * acknowledged
    assert max(map(len, lines)) <= 900
