"""Liveness of processes and holders of locks."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from det_core import processes
from det_core.processes import kill_lock_holders, process_has_ended, process_start_time

from ..waiting import wait_for

pytestmark = pytest.mark.integration


def test_a_zombie_counts_as_ended_and_a_living_process_does_not() -> None:
    assert int(process_start_time(os.getpid())) > 0
    assert not process_has_ended(os.getpid())
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert process_has_ended(child.pid)  # a zombie
    child.wait()
    assert process_has_ended(child.pid)
    assert process_start_time(child.pid) == ""


def test_a_later_process_with_the_same_id_is_another_one() -> None:
    start = process_start_time(os.getpid())
    assert not process_has_ended(os.getpid(), start)
    assert process_has_ended(os.getpid(), "1")
    assert process_has_ended(os.getpid(), str(int(start) + 1))


def test_all_processes_count_as_alive_where_proc_cannot_be_read() -> None:
    hidden = ["unshare", "--mount", "/bin/sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
    if os.getuid() != 0 or subprocess.run([*hidden, "true"], capture_output=True, timeout=60).returncode:
        pytest.skip("hiding /proc needs root")
    gone = subprocess.Popen(["true"])
    gone.wait()
    code = f"""if True:
        from det_core.processes import process_has_ended, process_start_time
        print([process_has_ended({os.getpid()}, "1"), process_start_time({os.getpid()}), process_has_ended({gone.pid})])
    """
    ran = subprocess.run([*hidden, sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ran.stdout.strip(), ran.stderr) == ("[False, '', True]", "")


@pytest.mark.parametrize(
    ("group", "expected"), [("0::/job/step", 3), ("0::/job", 3), ("0::/other", 9), ("4:memory:/job", 9), ("", 9)]
)
def test_memory_kills_of_other_control_groups_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str, expected: int
) -> None:
    """The nearest group with a memory controller counts, else the host."""
    monkeypatch.setattr(processes, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(processes, "_CONTROL_GROUPS", tmp_path / "groups")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "groups/job/step").mkdir(parents=True)
    (tmp_path / "groups/job/memory.events").write_text("low 0\nhigh 0\nmax 12\noom 4\noom_kill 3\n")
    (tmp_path / "proc/vmstat").write_text("nr_free_pages 1\noom_kill 9\n")
    (tmp_path / "proc/self/cgroup").write_text(f"1:name=systemd:/x\n{group}\n".rstrip("\n") + "\n")
    assert processes.count_memory_kills() == expected


def test_lock_holders_are_ended_with_all_that_they_started(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = subprocess.Popen(["flock", path, "sh", "-c", "sleep 1000 9>&- & echo $!; wait"], stdout=subprocess.PIPE)
    waiting = subprocess.Popen(["flock", path, "true"])
    assert holder.stdout
    with holder.stdout:
        child = int(holder.stdout.readline())
    with path.open() as ours:
        with pytest.raises(BlockingIOError):
            fcntl.flock(ours, fcntl.LOCK_EX | fcntl.LOCK_NB)
        kill_lock_holders(path)
        assert holder.wait(60) != 0
        wait_for(lambda: process_has_ended(child))
        assert waiting.wait(60) == 0
        fcntl.flock(ours, fcntl.LOCK_EX)
        kill_lock_holders(path)  # but not the process that asks
