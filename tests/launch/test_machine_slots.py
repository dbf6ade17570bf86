"""Slots that all runners of a host share, and the queue for them."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import FrameType

import pytest
from det_testing import is_soak
from pydantic import ValidationError

from det_core.errors import LaunchError
from det_core.launch import _slot_directory, _slot_tickets, machine_slots
from det_core.launch._slot_directory import SlotDirectory, slots_directory_path
from det_core.launch.local import LocalConfig
from det_core.launch.machine_slots import SlotReservation, list_slots, reserve_slots

NOBODY = 65534
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


def reserve(
    count: int, size: int = 2, *, priority: int = 42, at: float = 0, trial: int = 1, **options: str
) -> SlotReservation:
    return reserve_slots(
        [f"cpu-{index}" for index in range(size)],
        count,
        priority=priority,
        submitted=datetime.fromtimestamp(at, timezone.utc),
        experiment_id=12,
        trial_id=trial,
        **{"cluster_id": "0a1b", **options},
    )


@contextmanager
def another_user() -> Iterator[None]:
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def public_directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Put the slots where other users reach them, unlike pytest's directories."""
    with tempfile.TemporaryDirectory(prefix="det-slots-", dir="/tmp") as parent:
        Path(parent).chmod(0o755)
        monkeypatch.setenv("DET_SLOTS_DIR", f"{parent}/slots")
        yield Path(parent, "slots")


def held() -> dict[str, int]:
    """Return the trials that hold slots, by slot."""
    return {one.slot: one.holder.content.trial_id for one in list_slots([])[0] if one.holder}


def waiting() -> list[int]:
    return [one.content.trial_id for one in list_slots([])[1]]


def tickets(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir() if path.name.startswith("ticket-")]


def test_runners_share_the_slots(slots_directory: Path) -> None:
    first, second, third = (reserve(1, trial=trial) for trial in (1, 2, 3))
    assert (first.poll(), second.poll(), third.poll()) == ([0], [1], None)
    assert (held(), waiting()) == ({"cpu-0": 1, "cpu-1": 2}, [3])
    first.close()
    assert (third.poll(), third.poll()) == ([0], [0])
    assert (held(), waiting()) == ({"cpu-0": 3, "cpu-1": 2}, [])
    for one in (second, third):
        one.close()
    assert tickets(slots_directory) == []
    assert not any(state.in_use for state in list_slots(["cpu-0", "cpu-1"])[0])


def test_a_slot_is_in_use_until_the_last_process_has_ended() -> None:
    reservation, other = reserve(1, 1), reserve(1, 1, trial=2)
    assert reservation.poll() == [0]
    with subprocess.Popen(["sleep", "600"], pass_fds=reservation.descriptors) as process:
        reservation.close()
        assert other.poll() is None
        assert held() == {"cpu-0": 1}
        process.kill()
    with closing(other):
        assert other.poll() == [0]


def test_a_cleaner_that_respects_locks_keeps_the_files(slots_directory: Path) -> None:
    """As systemd-tmpfiles does, which removes old files, also if they are in use."""
    reservation = reserve(1)
    assert reservation.poll() == [0]
    directory = os.open(slots_directory, os.O_RDONLY)
    with subprocess.Popen(["sleep", "600"], pass_fds=reservation.descriptors) as process:
        reservation.close()
        with pytest.raises(BlockingIOError):
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        process.kill()
    fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert reserve(1).poll() is None  # the cleaner is at work
    os.close(directory)


def test_a_request_that_can_never_be_met_is_refused() -> None:
    with pytest.raises(LaunchError, match=r"needs 3 slots, but the launcher has 2; lower resources.slots_per_trial"):
        reserve(3)


def test_the_queue_is_ordered_by_priority_then_submission() -> None:
    holder = reserve(1, 1)
    assert holder.poll() == [0]
    late, early, urgent, twin = (
        reserve(1, 1, trial=10, at=9),
        reserve(1, 1, trial=20, at=5),
        reserve(1, 1, trial=30, at=9, priority=41),
        reserve(1, 1, trial=21, at=5),
    )
    queue = [late, early, urgent, twin]
    assert [one.poll() for one in queue] == [None] * 4
    assert waiting() == [30, 20, 21, 10]
    last = holder
    for expected in (urgent, early, twin, late):
        last.close()
        assert [one for one in queue if one.poll() is not None] == [expected]
        queue.remove(expected)
        last = expected
    last.close()


def test_others_can_read_the_ticket_of_the_largest_trial() -> None:
    ticket = reserve(1024, 1024)._ticket
    assert len(replace(ticket, held=ticket.slots).to_json()) <= _slot_directory._MOST_BYTES
    for more in (1025, 10**9):
        with pytest.raises(ValidationError, match="less than or equal to 1024"):
            LocalConfig(slots=more)


@pytest.mark.parametrize(("home", "shown"), [("/home of ada", " (DET_HOME=/home of ada)"), ("/\x1b[31m", "")])
def test_a_holder_with_another_tracking_store_is_named_with_its_home(home: str, shown: str) -> None:
    own = reserve(1, size=1)
    holder, same = reserve(1, size=1, trial=5, cluster_id="2c", home=home), reserve(1, size=1, cluster_id="2c")
    assert (holder.poll(), own.poll(), same.poll()) == ([0], None, None)
    assert own.explain_wait().endswith(f", trial 5{shown}; see `det slots`")
    assert same.explain_wait().endswith(", trial 5; see `det slots`")
    for reservation in (holder, own, same):
        reservation.close()


def test_a_trial_for_two_slots_keeps_those_that_become_free() -> None:
    """Later trials for one slot do not overtake it, but they use slots for which it does not wait."""
    one, two = reserve(1), reserve(1)
    assert (one.poll(), two.poll()) == ([0], [1])
    pair, single = reserve(2, at=1), reserve(1, at=2)
    elsewhere = reserve(1, size=3, at=3)
    assert (pair.poll(), single.poll(), elsewhere.poll()) == (None, None, [2])
    one.close()
    assert (single.poll(), pair.poll()) == (None, None)
    assert "is held by" in pair.explain_wait()
    assert single.explain_wait().startswith("waiting for a slot: experiment 12 of ")
    assert single.explain_wait().endswith(", trial 1 goes first; see `det slots`")
    two.close()
    assert (single.poll(), pair.poll(), single.poll()) == (None, [0, 1], None)
    pair.close()
    assert single.poll() == [0]
    for reservation in (single, elsewhere):
        reservation.close()


def test_a_trial_behind_takes_what_those_ahead_leave() -> None:
    blocker = reserve(2, size=3)
    assert blocker.poll() == [0, 1]
    ahead, behind = reserve(1, at=1), reserve(1, size=3, at=2)
    assert (ahead.poll(), behind.poll()) == (None, [2])
    blocker.close()
    for reservation in (ahead, behind):
        reservation.close()


def test_a_stopped_process_does_not_hold_up_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    holder, stopped, other = reserve(1, 1), reserve(1, 1, at=1, trial=2), reserve(1, 1, at=2, trial=3)
    assert (holder.poll(), stopped.poll(), other.poll()) == ([0], None, None)
    holder.close()
    assert other.poll() is None
    now = time.time() + _slot_tickets.RESPONSE_SECONDS
    monkeypatch.setattr(time, "time", lambda: now)
    assert other.poll() is not None
    assert [(one.content.trial_id, one.responding) for one in list_slots([])[1]] == [(2, False)]
    stopped.close()
    other.close()


def test_the_ticket_of_a_dead_process_is_ignored_and_removed(slots_directory: Path) -> None:
    holder, dead = reserve(1, 1), reserve(1, 1, at=1, trial=2)
    assert (holder.poll(), dead.poll()) == ([0], None)
    kept = {path: path.read_bytes() for path in slots_directory.glob("ticket-*")}
    dead.close()
    holder.close()
    for path, content in kept.items():
        path.write_bytes(content)
    later = reserve(1, 1, at=2)
    with closing(later):
        assert later.poll() == [0]
        assert len(tickets(slots_directory)) == 1


def test_a_slot_that_another_process_takes_first_costs_only_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slots that were already locked are free again."""
    lock, refused = SlotDirectory.lock, ["slot-cpu-1"]

    def refuse_once(self: SlotDirectory, name: str) -> int:
        if name in refused:
            refused.remove(name)
            raise BlockingIOError
        return lock(self, name)

    monkeypatch.setattr(SlotDirectory, "lock", refuse_once)
    with closing(reserve(2)) as pair, closing(reserve(1, 1, priority=1)) as single:
        assert pair.poll() is None
        assert single.poll() == [0]
        single.close()
        assert pair.poll() == [0, 1]


@pytest.mark.parametrize(
    "take", [lambda one: one.lock("slot-cpu-0"), lambda one: one.create("ticket-")], ids=["existing", "new"]
)
def test_a_file_that_was_removed_before_it_was_locked_counts_as_busy(
    slots_directory: Path, monkeypatch: pytest.MonkeyPatch, take: Callable[[SlotDirectory], object]
) -> None:
    """Two processes could otherwise lock two files of the same name."""
    flock = fcntl.flock

    def remove_first(file: int, operation: int) -> None:
        for path in slots_directory.iterdir():
            path.unlink()
        flock(file, operation)

    with closing(SlotDirectory()) as directory:
        (slots_directory / "slot-cpu-0").touch()
        monkeypatch.setattr(fcntl, "flock", remove_first)
        with pytest.raises(BlockingIOError, match="was removed before it was locked"):
            take(directory)
        assert not any(slots_directory.iterdir())


def crash_at(line: int) -> bool:
    """Reserve and return a slot in a child process that kills itself at a line of the modules, counted as they run.

    Returns:
        Whether the child was killed.
    """
    files, left = (machine_slots.__file__, _slot_directory.__file__, _slot_tickets.__file__), line

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., object] | None:
        nonlocal left
        if frame.f_code.co_filename not in files:
            return None
        left -= event == "line"
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    if not (child := os.fork()):
        sys.settrace(trace)
        reservation = reserve(1, 1)
        reservation.poll()
        reservation.close()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) < 0


@pytest.mark.integration
def test_a_crash_at_any_line_keeps_nobody_from_the_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for line in itertools.count(step=1 if is_soak() else 3):
        directory = tmp_path / str(line) / "slots"
        directory.parent.mkdir()
        monkeypatch.setenv("DET_SLOTS_DIR", str(directory))
        crashed = crash_at(line)
        with closing(reserve(1, 1, at=1)) as reservation:
            assert reservation.poll() == [0], line
        assert [path.name for path in directory.iterdir()] == ["slot-cpu-0"], line
        if not crashed:
            break
    assert line > 100


def test_removed_files_are_written_again(slots_directory: Path) -> None:
    holder, other = reserve(1, 1), reserve(1, 1, at=1, trial=2)
    assert (holder.poll(), other.poll()) == ([0], None)
    holder.close()
    for path in slots_directory.iterdir():
        path.unlink()
    slots_directory.rmdir()
    first = reserve(1, 1, at=2, trial=3)
    assert (first.poll(), other.poll(), waiting()) == ([0], None, [2])
    first.close()
    assert other.poll() == [0]
    other.close()


HOSTILE = {
    "empty": b"",
    "not JSON": b"{",
    "not UTF-8": b"\xff\xfe",
    "oversized": b'{"slots": ["' + b"x" * (1 << 20),
    "deep": b"[" * 50_000,
}
VALUES = {
    "never served": {"count": 9},
    "most urgent": {"priority": -1},
    "not finite": {"submitted": float("nan")},
    "late": {"since": 1e300},
    "path": {"slots": ["../../etc/passwd"]},
    "escape": {"cluster_id": "\x1b[2J"},
    "huge id": {"trial_id": 10**30},
    "text": {"experiment_id": "one"},
    "missing": {"slots": []},
}


@pytest.mark.parametrize("content", [*HOSTILE.values(), *VALUES.values()], ids=[*HOSTILE, *VALUES])
def test_a_bad_ticket_is_ignored(content: bytes | dict[str, object]) -> None:
    good = reserve(2, at=1)
    if isinstance(content, dict):
        text = json.loads(good._ticket.to_json()) | {"submitted": 0} | content
        content = json.dumps(text).encode()
    directory = SlotDirectory()
    with closing(directory), closing(good):
        _, file = directory.create("ticket-", content)
        try:
            assert good.poll() == [0, 1]
            assert waiting() == []
        finally:
            os.close(file)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/etc/passwd")])
def test_only_regular_files_are_used(slots_directory: Path, make: Callable[[Path], None]) -> None:
    SlotDirectory().close()
    make(slots_directory / "ticket-0")
    with closing(reserve(1)) as reservation:
        assert reservation.poll() == [0]
    make(slots_directory / "slot-cpu-5")
    with closing(reserve(6, 6)) as reservation, pytest.raises(LaunchError, match="slot-cpu-5 cannot be used"):
        reservation.poll()


def unsafe(path: Path, kind: str) -> None:
    """Prepare a directory that must not be used."""
    if kind == "symbolic link":
        (path.parent / "target").mkdir()
        path.symlink_to(path.parent / "target")
    elif kind == "dangling link":
        path.symlink_to(path.parent / "missing")
    elif kind == "file":
        path.touch()
    elif kind == "not sticky":
        path.mkdir()
        path.chmod(0o777)
    elif kind == "replaceable":
        path.mkdir()
        path.parent.chmod(0o777)
    else:
        path.mkdir(0o755)
        os.chown(path, NOBODY, NOBODY)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("symbolic link", "not a directory, or a symbolic link"),
        ("dangling link", "not a directory, or a symbolic link"),
        ("file", "not a directory, or a symbolic link"),
        ("not sticky", "other users can replace what is in .*/slots, whose mode is 0777"),
        ("replaceable", "other users can replace what is in .*, whose mode is 0777"),
        pytest.param("another user's", "it belongs to user id 65534 and has mode 0755, not 1777", marks=needs_root),
    ],
)
def test_an_unsafe_directory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, reason: str
) -> None:
    path = tmp_path / "parent" / "slots"
    path.parent.mkdir()
    monkeypatch.setenv("DET_SLOTS_DIR", str(path))
    unsafe(path, kind)
    with pytest.raises(LaunchError, match=f"{reason}.* mkdir -m 1777 .* DET_SLOTS_DIR"):
        reserve(1).poll()


def test_a_missing_parent_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_SLOTS_DIR", str(tmp_path / "missing" / "slots"))
    with pytest.raises(LaunchError, match="cannot be created: No such file or directory"):
        reserve(1).poll()


def test_all_users_choose_the_same_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DET_SLOTS_DIR")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    lock, other = tmp_path / "lock", tmp_path / "tmp"
    monkeypatch.setattr(_slot_directory, "_PARENTS", (lock, other))
    lock.mkdir(0o755)
    assert slots_directory_path() == other / "det-slots"
    lock.chmod(0o1777)
    assert slots_directory_path() == lock / "det-slots"


@needs_root
def test_two_users_share_the_slots(public_directory: Path) -> None:
    umask = os.umask(0o077)
    try:
        with another_user(), pytest.raises(LaunchError, match="cannot be created: Permission denied"):
            reserve(1).poll()
        ours = reserve(2, at=1)
        assert ours.poll() == [0, 1]
        with another_user():
            theirs = reserve(1, at=2, trial=2)
            assert theirs.poll() is None
            assert "slot cpu-0 is held by experiment 12 of root, trial 1" in theirs.explain_wait()
            assert (held(), waiting()) == ({"cpu-0": 1, "cpu-1": 1}, [2])
            (ticket,) = (path for path in public_directory.glob("ticket-*") if path.owner() == "root")
            with pytest.raises(PermissionError):
                ticket.write_text("")
            with pytest.raises(PermissionError):
                ticket.unlink()
        assert [one.user for one in list_slots([])[1]] == ["nobody"]
        ours.close()
        again = reserve(2, at=3)
        with another_user():
            assert theirs.poll() == [0]
        assert again.poll() is None
        assert "slot cpu-0 is held by experiment 12 of nobody, trial 2" in again.explain_wait()
        with another_user():
            theirs.close()
        assert again.poll() == [0, 1]
        again.close()
        assert tickets(public_directory) == []
    finally:
        os.umask(umask)


@needs_root
def test_a_slot_that_another_user_has_closed_is_an_error(public_directory: Path) -> None:
    SlotDirectory().close()
    (public_directory / "slot-cpu-0").touch(0o600)
    refused = pytest.raises(LaunchError, match="slot-cpu-0 cannot be used: Permission denied; remove it, or ask")
    with another_user(), closing(reserve(1)) as reservation, refused:
        reservation.poll()


def test_slots_that_others_claim_are_not_available(slots_directory: Path) -> None:
    """Count what a trial could take that waits for more, or that holds some."""
    asks = reserve(1, size=4, trial=5)
    assert asks.count_available() == 4
    holds, waits, behind = reserve(2, size=4, trial=5), reserve(3, size=4, trial=4), reserve(2, size=4, trial=6)
    assert holds.poll() == [0, 1]
    assert asks.count_available() == 2
    assert behind.poll() == [2, 3]
    assert asks.count_available() == 0
    behind.close()
    assert waits.poll() is None
    assert asks.count_available() == 0, "trial 4 goes first"
    waits.close()
    holds.close()
    assert asks.count_available() == 4
    assert tickets(slots_directory) == []
