"""Slots and processes of the local launcher."""

from __future__ import annotations

import gc
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path

import psutil
import pytest
from det_testing import is_soak
from det_testing.launcher.watched_launch import refuse_calls

from det_core.errors import LaunchDelayed, LaunchError
from det_core.interfaces.launcher import PYTHON, Allocation, Exit, LaunchRequest
from det_core.launch import gpu_slots, queued_launch
from det_core.launch.context_archive import pack_context_dir
from det_core.launch.local import LocalConfig, LocalLauncher
from det_core.launch.machine_slots import SlotReservation, reserve_slots

ENDED = Exit(code=0)


def pack_nothing() -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        return pack_context_dir(Path(directory))


NO_CODE = pack_nothing()


@pytest.fixture
def short_tmp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a directory for temporary files in which sockets have room."""
    with tempfile.TemporaryDirectory() as directory:
        monkeypatch.setattr("tempfile.tempdir", directory)
        yield Path(directory)


DEVICES = "os.environ.get('CUDA_VISIBLE_DEVICES'), os.environ['DET_SLOT_IDS']"


def start(
    launcher: LocalLauncher,
    name: str,
    slots: int,
    asked: str = DEVICES,
    code: bytes = NO_CODE,
    **env: str,
) -> tuple[Allocation, list[str]]:
    """Start a launch, and return it with the output of its process."""
    output: list[str] = []
    request = LaunchRequest(
        key=name,
        argv=[PYTHON, "-c", f"import os; print({asked})"],
        code=code,
        info={"cluster.json": {}},
        env=env,
        slots=slots,
        log=lambda rank, stdtype, text: output.append(text),
        call=refuse_calls,
    )
    return launcher.start(request), output


@pytest.mark.integration
def test_a_gpu_that_vanishes_is_no_other_one(install_gpus: Callable[..., None]) -> None:
    """The others keep their numbers, whatever their indices are now."""
    install_gpus(0, 1, 2)
    launcher = LocalLauncher(LocalConfig())
    (gpu_slots._DEVICES / "nvidia0").unlink()
    for name in ("one", "two"):
        allocation, output = start(launcher, name, 1)
        with closing(allocation):
            assert allocation.wait(60) == ENDED
        assert output == ["0 [1]"]
    both, output = start(launcher, "both", 2)
    with closing(both):
        assert both.wait(60) == ENDED
    assert output == ["0,1 [1, 2]"]
    with pytest.raises(LaunchError, match="the trial needs 3 slots, but the launcher has 2"):
        start(launcher, "all", 3)
    assert (launcher.slots, launcher.device()) == (3, "cuda")


@pytest.mark.integration
@pytest.mark.usefixtures("det_home")
def test_launches_at_once_have_different_gpus(
    monkeypatch: pytest.MonkeyPatch, install_gpus: Callable[..., None]
) -> None:
    install_gpus(0, 1, 2, 3)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2,3")
    launcher = LocalLauncher(LocalConfig())
    assert (launcher.slots, launcher.device()) == (3, "cuda")
    launches = [start(launcher, "first", 2), start(launcher, "second", 1)]
    for allocation, _ in launches:
        assert allocation.wait(60) == ENDED
        allocation.close()
    assert [output for _, output in launches] == [["1,2 [0, 1]"], ["3 [2]"]]


@pytest.mark.usefixtures("det_home")
def test_a_wait_is_not_explained_at_each_attempt_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """An explanation reads the tickets of all trials."""
    explained: list[SlotReservation] = []
    monkeypatch.setattr(SlotReservation, "explain_wait", lambda self: explained.append(self) or "a reason")
    monkeypatch.setattr(queued_launch, "_POLL_EVERY", 0.001)
    launcher = LocalLauncher(LocalConfig())
    holder = reserve_slots(["cpu-0"], 1, priority=1, submitted=datetime.fromtimestamp(0, timezone.utc))
    with closing(holder):
        assert holder.poll() == [0]
        allocation, _ = start(launcher, "waits", 1)
        with closing(allocation):
            assert allocation.wait(0.1) is None
            assert allocation.status().message == "a reason"
    assert len(explained) == 1


@pytest.mark.integration
@pytest.mark.usefixtures("det_home")
def test_a_launch_leaves_no_thread_and_no_directory(short_tmp: Path) -> None:
    """No thread stays blocked in ``accept()``, and a removed directory does not keep its slots."""
    before = threading.enumerate()
    launcher = LocalLauncher(LocalConfig())
    for number in range(2):
        remove = "__import__('shutil').rmtree(os.path.dirname(os.environ['DET_INFO_DIR']))" if number else "0"
        allocation, _ = start(launcher, "one", 1, remove)
        assert allocation.wait(60) == ENDED
        allocation.close()
    assert not [thread for thread in threading.enumerate() if thread not in before and thread.name.startswith("det-")]
    assert list(short_tmp.iterdir()) == []


@pytest.mark.integration
@pytest.mark.campaign
@pytest.mark.timeout(7200)
@pytest.mark.usefixtures("det_home")
def test_many_launches_leave_nothing_behind(short_tmp: Path) -> None:
    """After the first few launches, the launching process gains no threads, descriptors, processes or memory."""
    launcher = LocalLauncher(LocalConfig())
    process = psutil.Process()

    def launch(count: int) -> tuple[int, int, int]:
        for _ in range(count):
            request = LaunchRequest(
                key="many",
                argv=["echo", "x" * 1000],
                code=NO_CODE,
                info={"cluster.json": {}},
                env={},
                slots=1,
                log=lambda rank, stdtype, text: None,
                call=refuse_calls,
            )
            allocation = launcher.start(request)
            assert allocation.wait(60) == ENDED
            allocation.close()
        gc.collect()
        return threading.active_count(), process.num_fds(), len(process.children())

    before = launch(20)
    memory = process.memory_info().rss
    assert launch(10_000 if is_soak() else 50) == before
    assert process.memory_info().rss - memory < 16 << 20
    assert list(short_tmp.iterdir()) == []


@pytest.mark.integration
@pytest.mark.usefixtures("det_home")
@pytest.mark.parametrize(("slots", "threads"), [(1, None), (2, "2")])
def test_trials_at_once_share_the_cores(monkeypatch: pytest.MonkeyPatch, slots: int, threads: str | None) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(5))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    allocation, output = start(LocalLauncher(LocalConfig(slots=slots)), "one", 1, "os.environ.get('OMP_NUM_THREADS')")
    with closing(allocation):
        assert allocation.wait(60) == ENDED
    assert output == [str(threads)]


@pytest.mark.integration
@pytest.mark.usefixtures("det_home")
@pytest.mark.parametrize("what", ["temporary files", "slots"])
def test_a_full_disk_delays_a_launch(short_tmp: Path, slots_directory: Path, what: str) -> None:
    place = short_tmp if what == "temporary files" else slots_directory
    place.mkdir(exist_ok=True)
    full = ["mount", "-t", "tmpfs", "-o", "nr_inodes=1", "tmpfs", place]
    if subprocess.run(full, capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    launcher = LocalLauncher(LocalConfig())
    try:
        with pytest.raises(LaunchDelayed, match="No space left on device"):
            start(launcher, "trial", 1)
    finally:
        subprocess.run(["umount", place], check=True)
    place.chmod(0o1777)
    allocation, _ = start(launcher, "trial", 1)
    with closing(allocation):
        assert allocation.wait(60) == ENDED


@pytest.mark.integration
@pytest.mark.usefixtures("det_home")
@pytest.mark.parametrize("thread", ["det-agent", "det-stderr"])
def test_a_launch_without_a_thread_leaves_nothing_behind(
    short_tmp: Path, monkeypatch: pytest.MonkeyPatch, thread: str
) -> None:
    start_thread = threading.Thread.start

    def refuse(self: threading.Thread) -> None:
        if self.name == thread:
            raise RuntimeError("can't start new thread")
        start_thread(self)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    before = psutil.Process().children()
    with pytest.raises(RuntimeError, match="can't start new thread"):
        start(LocalLauncher(LocalConfig()), "trial", 1, "__import__('time').sleep(60)")
    assert (psutil.Process().children(), list(short_tmp.iterdir())) == (before, [])
