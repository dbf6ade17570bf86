"""Splitting of process output into lines with ranks."""

from __future__ import annotations

import pytest

from det_core.launch.output_lines import LineDecoder


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def lines(*chunks: bytes) -> list[tuple[int | None, str]]:
    stream = LineDecoder()
    return [line for chunk in (*chunks, b"") for line in stream.feed(chunk)]


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ((b"a\nb\n",), [(None, "a"), (None, "b")]),
        ((b"a\n\nb",), [(None, "a"), (None, ""), (None, "b")]),
        ((b"one", b" line\nand", b" more\n"), [(None, "one line"), (None, "and more")]),
        ((b"windows\r\n",), [(None, "windows")]),
        ((b"[rank=3] text\n",), [(3, "text")]),
        ((b"[default12]:text\n",), [(12, "text")]),
        ((b"[rank1]: Traceback\n",), [(1, "Traceback")]),
        ((b"[rank=1] [rank1]:   File\n",), [(1, "  File")]),
        ((b"[rank=0] hel[rank=0] lo\n",), [(0, "hello")]),
        ((b"[rank=x] text\n[rank 3] text\n",), [(None, "[rank=x] text"), (None, "[rank 3] text")]),
        ((b"[rank=9999999999] text\n",), [(None, "[rank=9999999999] text")]),
        ((b"[rank" + b"9" * 5000 + b"]: text\n",), [(None, f"[rank{'9' * 5000}]: text")]),
        ((b"not first [rank=3] text\n",), [(None, "not first [rank=3] text")]),
        ((b"caf\xc3", b"\xa9 \xff\n"), [(None, "café �")]),
        ((b"cut \xc3",), [(None, "cut �")]),
        ((b"[rank=2] 10%\r 50%\r100%\n",), [(2, "100%")]),
        ((b"\r 10%", b"\r 20%", b"\r 30%\n"), [(None, " 30%")]),
        ((), []),
    ],
)
def test_bytes_become_lines_with_ranks(chunks: tuple[bytes, ...], expected: list[tuple[int | None, str]]) -> None:
    assert lines(*chunks) == expected


@pytest.mark.parametrize("chunk", [1000, 1 << 16, 1 << 20])
def test_a_long_line_is_split_and_keeps_its_rank(chunk: int) -> None:
    text = "é" * 200_000
    data = f"[rank=1] {text}\nshort\n".encode()
    found = lines(*(data[start : start + chunk] for start in range(0, len(data), chunk)))
    *pieces, last = found
    assert last == (None, "short")
    assert {rank for rank, _ in pieces} == {1}
    assert "".join(piece for _, piece in pieces) == text
    assert max(len(piece) for _, piece in pieces) <= 1 << 16 or chunk > 1 << 16


def test_a_progress_bar_is_returned_at_intervals_and_at_its_end() -> None:
    clock = Clock()
    stream = LineDecoder(clock)
    found = []
    for percent in range(101):
        clock.now += 0.5
        found += stream.feed(f"\r{percent}%".encode())
    found += stream.feed(b"\n")
    assert found == [(None, "19%"), (None, "39%"), (None, "59%"), (None, "79%"), (None, "99%"), (None, "100%")]


def test_a_bar_that_ends_right_after_an_interval_leaves_no_empty_line() -> None:
    clock = Clock()
    stream = LineDecoder(clock)
    clock.now = 11
    assert list(stream.feed(b"\rdone")) == [(None, "done")]
    assert [*stream.feed(b"\n"), *stream.feed(b"next\n")] == [(None, "next")]
