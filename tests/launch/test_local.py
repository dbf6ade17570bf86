"""Slots and processes of the local launcher."""

from __future__ import annotations

import gc
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from det_core.errors import LaunchDelayed, LaunchError
from det_core.interfaces.launcher import Allocation, LaunchRequest
from det_core.launch import local
from det_core.launch.local import LocalConfig, LocalLauncher
from det_core.launch.machine_slots import list_slots
from det_core.testing import is_soak


@pytest.fixture
def short_tmp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a directory for temporary files in which sockets have room."""
    with tempfile.TemporaryDirectory() as directory:
        monkeypatch.setattr("tempfile.tempdir", directory)
        yield Path(directory)


DEVICES = "os.environ.get('CUDA_VISIBLE_DEVICES'), os.environ['DET_SLOT_IDS']"


def start(
    launcher: LocalLauncher,
    directory: Path,
    name: str,
    slots: int,
    asked: str = DEVICES,
    is_stopped: Callable[[], bool] = lambda: False,
    output: list[str] | None = None,
    **env: str,
) -> tuple[Allocation, list[str]]:
    """Start a launch, and return it with the output of its process."""
    output = [] if output is None else output
    request = LaunchRequest(
        name=name,
        argv=[sys.executable, "-c", f"import os; print({asked})"],
        cwd=directory,
        info={"cluster.json": {}},
        env=env,
        slots=slots,
        log=lambda rank, stdtype, text: output.append(text),
        is_stopped=is_stopped,
    )
    return launcher.start(request), output


@pytest.mark.integration
@pytest.mark.usefixtures("det_home")
def test_launches_at_once_have_different_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, install_gpus: Callable[..., None]
) -> None:
    install_gpus(0, 1, 2, 3)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2,3")
    launcher = LocalLauncher(LocalConfig())
    assert launcher.slots == 3
    launches = [start(launcher, tmp_path, "first", 2), start(launcher, tmp_path, "second", 1)]
    for allocation, _ in launches:
        assert allocation.wait(20) == 0
        allocation.close()
    assert [output for _, output in launches] == [["1,2 [0, 1]"], ["3 [2]"]]


@pytest.mark.integration
@pytest.mark.usefixtures("det_home")
def test_a_launch_waits_for_the_slot_of_another_runner(tmp_path: Path) -> None:
    """It says once who holds the slot, starts when the slot is free, and leaves the queue when it is stopped."""
    one, other = LocalLauncher(LocalConfig()), LocalLauncher(LocalConfig())
    sleeping = "__import__('time').sleep(600)"
    holder, _ = start(one, tmp_path, "first", 1, sleeping)
    asked = iter([False, False, True])
    with pytest.raises(LaunchDelayed, match="stopped while it waited"):
        start(other, tmp_path, "second", 1, is_stopped=lambda: next(asked))
    assert list_slots([])[1] == []

    def end() -> bool:
        if output:
            holder.kill()
            holder.close()
        return False

    output: list[str] = []
    allocation, _ = start(other, tmp_path, "third", 1, is_stopped=end, output=output)
    with closing(allocation):
        assert allocation.wait(20) == 0
    held = "waiting for a slot: slot cpu-0 is held by experiment 0 of "
    assert [line.startswith(held) for line in output] == [True, False]


@pytest.mark.integration
@pytest.mark.usefixtures("det_home")
def test_a_launch_leaves_no_thread_and_no_directory(tmp_path: Path, short_tmp: Path) -> None:
    """No thread stays blocked in ``accept()``, and a removed directory does not keep its slots."""
    before = set(threading.enumerate())
    launcher = LocalLauncher(LocalConfig())
    for number in range(3):
        remove = "__import__('shutil').rmtree(os.path.dirname(os.environ['DET_INFO_DIR']))" if number else "0"
        allocation, _ = start(launcher, tmp_path, "one", 1, remove)
        assert allocation.wait(20) == 0
        allocation.close()
    assert set(threading.enumerate()) <= before
    assert list(short_tmp.iterdir()) == []


@pytest.mark.integration
@pytest.mark.campaign
@pytest.mark.timeout(7200)
@pytest.mark.usefixtures("det_home")
def test_many_launches_leave_nothing_behind(tmp_path: Path, short_tmp: Path) -> None:
    """After the first few launches, the launching process gains no threads, descriptors, processes or memory."""
    launcher = LocalLauncher(LocalConfig())
    process = psutil.Process()

    def launch(count: int) -> tuple[int, int, int]:
        for _ in range(count):
            request = LaunchRequest(
                name="many",
                argv=["echo", "x" * 1000],
                cwd=tmp_path,
                info={"cluster.json": {}},
                env={},
                slots=1,
                log=lambda rank, stdtype, text: None,
            )
            allocation = launcher.start(request)
            assert allocation.wait(60) == 0
            allocation.close()
        gc.collect()
        return threading.active_count(), process.num_fds(), len(process.children())

    before = launch(50)
    memory = process.memory_info().rss
    assert launch(10_000 if is_soak() else 300) == before
    assert process.memory_info().rss - memory < 16 << 20
    assert list(short_tmp.iterdir()) == []


@pytest.mark.integration
@pytest.mark.usefixtures("det_home")
def test_a_launch_that_fails_holds_no_slots(tmp_path: Path) -> None:
    launcher = LocalLauncher(LocalConfig())
    with pytest.raises(LaunchError, match="cannot start"):
        start(launcher, tmp_path / "missing", "first", 1)
    allocation, _ = start(launcher, tmp_path, "second", 1)
    assert allocation.wait(20) == 0
    allocation.close()


@pytest.mark.integration
@pytest.mark.usefixtures("det_home")
@pytest.mark.parametrize(("slots", "threads"), [(1, None), (2, "2"), (3, "1"), (8, "1")])
def test_trials_at_once_share_the_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slots: int, threads: str | None
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(5))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert threads_of(slots, tmp_path) == [str(threads)]


@pytest.mark.integration
@pytest.mark.usefixtures("det_home")
def test_a_number_of_threads_set_by_the_user_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert threads_of(2, tmp_path) == ["7"]
    assert threads_of(2, tmp_path, OMP_NUM_THREADS="6") == ["6"]


def threads_of(slots: int, directory: Path, **env: str) -> list[str]:
    """Return the number of threads that a worker among several gets."""
    launcher = LocalLauncher(LocalConfig(slots=slots))
    allocation, output = start(launcher, directory, "one", 1, "os.environ.get('OMP_NUM_THREADS')", **env)
    with closing(allocation):
        assert allocation.wait(20) == 0
    return output


def test_more_slots_than_exist_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"needs 2 slots, but this machine has 1; lower resources.slots_per_trial"):
        start(LocalLauncher(LocalConfig()), tmp_path, "first", 2)


@pytest.mark.integration
def test_processes_left_by_an_earlier_run_are_ended(
    tmp_path: Path, det_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_GRACE", 0.0)
    lock = det_home / "locks" / "trial.lock"
    lock.parent.mkdir(parents=True)
    left = subprocess.Popen(["flock", lock, "sh", "-c", "echo locked; sleep 1000"], stdout=subprocess.PIPE)
    assert left.stdout and left.stdout.readline()
    allocation, _ = start(LocalLauncher(LocalConfig()), tmp_path, "trial", 1)
    with closing(allocation), left.stdout:
        assert left.wait(20) != 0
        assert allocation.wait(20) == 0


@pytest.mark.integration
@pytest.mark.usefixtures("det_home")
def test_a_full_disk_delays_a_launch(tmp_path: Path, short_tmp: Path) -> None:
    full = ["mount", "-t", "tmpfs", "-o", "nr_inodes=1", "tmpfs", short_tmp]
    if subprocess.run(full, capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    launcher = LocalLauncher(LocalConfig())
    try:
        with pytest.raises(LaunchDelayed, match="No space left on device"):
            start(launcher, tmp_path, "trial", 1)
    finally:
        subprocess.run(["umount", short_tmp], check=True)
    allocation, _ = start(launcher, tmp_path, "trial", 1)
    with closing(allocation):
        assert allocation.wait(20) == 0
