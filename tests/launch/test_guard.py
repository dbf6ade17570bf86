"""Guard between the agent and a command, in real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import psutil
import pytest

from det_core.launch import _guard, _guarded_command

from ..waiting import is_alive, wait_for

pytestmark = pytest.mark.integration

PROMISED = 10.0
"""Seconds within which all processes end when the agent is gone."""
SLACK = 20.0

# Shell text that starts a process in its own session and prints its id.
STRAY = "setsid sleep 1000 & echo $!; "


class Guarded:
    """Command under the guard, with the agent's end of the channel."""

    def __init__(self, *argv: str) -> None:
        for_guard, self.channel = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", _guard.__file__, str(for_guard), *argv],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            pass_fds=(for_guard,),
        )
        os.close(for_guard)

    def hang_up(self) -> None:
        if self.channel >= 0:
            os.close(self.channel)
        self.channel = -1

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err

    def inner(self) -> psutil.Process:
        """Return the guard below this one."""
        (inner,) = psutil.Process(self.process.pid).children()
        return inner

    def first_line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()


@pytest.fixture
def guarded() -> Iterator[Callable[..., Guarded]]:
    started: list[Guarded] = []

    def start(*argv: str) -> Guarded:
        started.append(Guarded(*argv))
        return started[-1]

    yield start
    for one in started:
        one.hang_up()
        one.process.kill()
        one.process.communicate(timeout=60)


@pytest.mark.parametrize(
    ("command", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", -15), ("kill -9 $$", -9)]
)
def test_the_guard_exits_as_the_command_does(guarded: Callable[..., Guarded], command: str, code: int) -> None:
    assert guarded("/bin/sh", "-c", command).end() == (code, "", "")


def test_output_and_signals_are_those_of_the_command(guarded: Callable[..., Guarded]) -> None:
    one = guarded(sys.executable, "-c", "import signal; print(signal.getsignal(signal.SIGTERM)); print(1/0)")
    code, out, err = one.end()
    assert (code, out.strip()) == (1, str(signal.SIG_DFL))
    assert "ZeroDivisionError" in err


@pytest.mark.parametrize(
    ("program", "code", "words"), [("no-such-program", 127, "No such file"), ("/etc/passwd", 126, "Permission denied")]
)
def test_a_command_that_cannot_start_is_reported(
    guarded: Callable[..., Guarded], program: str, code: int, words: str
) -> None:
    found, _, err = guarded(program, "argument").end()
    assert found == code
    assert f"cannot start {program!r}: {words}" in err


def test_no_process_is_left_behind_when_the_command_ends(guarded: Callable[..., Guarded]) -> None:
    one = guarded("/bin/sh", "-c", f"{STRAY} exit 3")
    stray = int(one.first_line())
    assert one.end()[0] == 3
    assert not is_alive(stray)


def test_the_guard_ends_everything_at_once_on_request(guarded: Callable[..., Guarded]) -> None:
    one = guarded("/bin/sh", "-c", f"trap '' TERM; {STRAY} sleep 1000")
    stray = int(one.first_line())
    began = time.monotonic()
    os.write(one.channel, b"!")
    assert one.end()[0] == -9
    assert time.monotonic() - began < _guard.GRACE
    assert not is_alive(stray)


def test_the_guard_survives_a_command_that_signals_its_group(guarded: Callable[..., Guarded]) -> None:
    assert guarded("/bin/sh", "-c", "trap 'exit 4' TERM; kill -TERM 0; sleep 5").end()[0] == 4


@pytest.mark.slow
def test_the_command_may_finish_within_the_grace_period_when_the_agent_is_gone(guarded: Callable[..., Guarded]) -> None:
    one = guarded("/bin/sh", "-c", f"{STRAY} sleep 1000")
    stray = int(one.first_line())
    began = time.monotonic()
    one.hang_up()
    assert one.end()[0] == -9
    assert _guard.GRACE <= time.monotonic() - began < PROMISED + SLACK
    assert not is_alive(stray)


def test_a_command_may_end_by_itself_when_the_agent_is_gone(guarded: Callable[..., Guarded]) -> None:
    one = guarded("/bin/sh", "-c", "echo started; sleep 1; exit 5")
    assert one.first_line() == "started"
    one.hang_up()
    assert one.end()[0] == 5


def test_orphans_are_reaped_while_the_command_runs(guarded: Callable[..., Guarded]) -> None:
    # Each subshell leaves an orphan that ends at once; zombies would stay children of the guard.
    one = guarded("/bin/sh", "-c", "for i in 1 2 3 4 5; do (true & true); done; sleep 0.5; echo done; sleep 5")
    assert one.first_line() == "done"
    assert len(one.inner().children()) == 1


@pytest.mark.parametrize("victim", ["outer", "inner"])
def test_the_remaining_guard_ends_all_processes(guarded: Callable[..., Guarded], victim: str) -> None:
    one = guarded("/bin/sh", "-c", f"{STRAY} sleep 1000; true")
    stray, inner = int(one.first_line()), one.inner()
    tree = [stray, inner.pid, *(process.pid for process in inner.children())]
    (inner if victim == "inner" else one.process).kill()
    wait_for(lambda: not any(map(is_alive, tree)), seconds=60)
    assert one.end()[0] == -9


def test_the_group_is_killed_where_processes_cannot_be_listed() -> None:
    hidden = ["unshare", "--mount", "/bin/sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
    if os.getuid() != 0 or subprocess.run([*hidden, "true"], capture_output=True, timeout=60).returncode:
        pytest.skip("hiding /proc needs root")
    one = subprocess.Popen(
        [*hidden, sys.executable, "-I", "-S", _guard.__file__, "0", "/bin/sh", "-c", "echo $$; exec sleep 1000"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert one.stdin and one.stdout
    with one.stdin, one.stdout:
        command = int(one.stdout.readline())
        one.stdin.write(b"!")
    assert one.wait(60) == -9
    wait_for(lambda: not is_alive(command))


def test_a_kill_after_the_end_has_no_effect() -> None:
    """An order of the runner may come while the agent reports the end, and must not keep it from that."""
    command = _guarded_command.SpawnedCommand(["true"], os.environ)
    assert command.wait(60) == 0
    command.close()
    command.kill()


def test_a_command_that_cannot_be_started_leaves_no_descriptor() -> None:
    before = psutil.Process().num_fds()
    with pytest.raises(ValueError, match="null"):
        _guarded_command.SpawnedCommand(["true"], {"A": "\0"})
    assert psutil.Process().num_fds() == before


def test_a_kill_takes_effect_while_a_guard_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("det_core.launch._guarded_command._KILL_SECONDS", 0.5)
    source, output = os.pipe()
    command = _guarded_command.SpawnedCommand(
        ["/bin/sh", "-c", f"{STRAY} sleep 1000; true"], os.environ, outputs=(output, None)
    )
    os.close(output)
    with os.fdopen(source, "rb") as out, closing(command):
        stray = int(out.readline())
        os.kill(command._process.pid, signal.SIGSTOP)
        command.kill()
        assert command.wait(60) == -9
        wait_for(lambda: not is_alive(stray))
