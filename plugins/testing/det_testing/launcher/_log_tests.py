"""Tests of the lines that processes print."""

from __future__ import annotations

from det_testing.launcher.launcher_suite import Launch, LauncherSuite
from det_testing.launcher.watched_launch import Line

_LINES = 20_000

_STREAMS = """
for number in range(100):
    print(f"out {number}")
    print(f"err {number}", file=sys.stderr)
print()
print("tab\\tand spaces  ")
"""
_RANKS = """
print("[rank=1] of our launchers")
print("[default0]:of torchrun")
print("[rank3]: of tracebacks", file=sys.stderr)
print("[note] without a rank")
"""
_BINARY = """
for data in (b"before \\xff\\xfe after\\n", "Grün 😀\\n".encode(), b"nul \\x00 byte\\n", b"a\\r\\n", b"no newline"):
    sys.stdout.buffer.write(data)
    sys.stdout.flush()
    time.sleep(0.05)
"""
_BARS = """
print("\\r".join(f"{percent} %" for percent in range(101)))
print("after")
"""


class LaunchLogTests(LauncherSuite):
    """Tests that no line is lost, torn or delivered late."""

    def test_lines_have_their_stream_and_order(self, launch: Launch) -> None:
        """The lines of each stream keep their order. Empty lines and spaces belong to the output."""
        one = launch(_STREAMS)
        one.require_code()
        assert one.output("stdout") == [*(f"out {number}" for number in range(100)), "", "tab\tand spaces  "]
        assert one.output("stderr") == [f"err {number}" for number in range(100)]

    def test_lines_have_their_rank(self, launch: Launch) -> None:
        """Launchers of several workers prefix lines with the rank, which becomes a column of the log."""
        one = launch(_RANKS)
        one.require_code()
        assert sorted(one.lines, key=lambda line: line.text) == [
            Line(None, "stdout", "[note] without a rank"),
            Line(1, "stdout", "of our launchers"),
            Line(0, "stdout", "of torchrun"),
            Line(3, "stderr", "of tracebacks"),
        ]

    def test_lines_arrive_while_the_processes_run(self, launch: Launch) -> None:
        """``det trial logs --follow`` shows what happens now."""
        one = launch("report(1); time.sleep(100)")
        one.report()
        one.allocation.kill()
        one.ended()

    def test_long_lines_arrive_complete(self, launch: Launch) -> None:
        """A line longer than 64 Ki characters may be split, but nothing of it may be lost."""
        one = launch("print('0123456789' * 30_000); print('after')")
        one.require_code()
        *pieces, after = one.output()
        assert "".join(pieces) == "0123456789" * 30_000
        assert after == "after"

    def test_any_bytes_are_delivered(self, launch: Launch) -> None:
        """Programs print bytes that are no UTF-8, in pieces that end anywhere."""
        one = launch(_BINARY)
        one.require_code()
        assert one.output() == ["before \ufffd\ufffd after", "Grün 😀", "nul \x00 byte", "a", "no newline"]

    def test_overwritten_text_counts_once(self, launch: Launch) -> None:
        """A progress bar is one line, not a hundred."""
        one = launch(_BARS)
        one.require_code()
        assert one.output() == ["100 %", "after"]

    def test_the_last_lines_arrive_before_the_end(self, launch: Launch) -> None:
        """The last lines say why the processes ended. After `Allocation.close`, nobody listens any more."""
        one = launch(f"print(*range({_LINES}), sep='\\n', flush=True)\nos._exit(3)")
        one.require_code(3)
        delivered = list(one.lines)
        assert [line.text for line in delivered] == list(map(str, range(_LINES)))
        assert one.allocation.wait(0.5) == one.ended()
        assert one.lines == delivered
