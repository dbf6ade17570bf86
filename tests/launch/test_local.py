"""Which slots the local launcher gives to whom."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from det_core.errors import LaunchError
from det_core.interfaces.launcher import Allocation, LaunchRequest
from det_core.launch import local
from det_core.launch.local import LocalConfig, LocalLauncher, gpus


@pytest.fixture
def four_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidia10", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    monkeypatch.setattr(local, "_DEVICES", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.usefixtures("four_gpus")
@pytest.mark.parametrize(
    ("visible", "expected"),
    [(None, ["0", "1", "2", "10"]), ("2,10", ["2", "10"]), ("", []), ("-1", []), ("GPU-a", ["GPU-a"])],
)
def test_the_gpus_that_may_be_used(visible: str | None, expected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert local._gpu_ids() == expected
    assert gpus() == len(expected)


def start(launcher: LocalLauncher, directory: Path, name: str, slots: int) -> tuple[Allocation, list[str]]:
    """What a process of the launch says of its devices."""
    said: list[str] = []
    code = "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'), os.environ['DET_SLOT_IDS'])"
    request = LaunchRequest(
        name=name,
        argv=[sys.executable, "-c", code],
        cwd=directory,
        info={"cluster.json": {}},
        slots=slots,
        log=lambda rank, stdtype, text: said.append(text),
    )
    return launcher.start(request), said


@pytest.mark.integration
@pytest.mark.usefixtures("four_gpus", "det_home")
def test_launches_at_once_have_different_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2,10")
    launcher = LocalLauncher(LocalConfig())
    assert launcher.slots == 3
    launches = [start(launcher, tmp_path, "first", 2), start(launcher, tmp_path, "second", 1)]
    with pytest.raises(LaunchError, match="needs 1 slots and 0 of 3 are free"):
        start(launcher, tmp_path, "third", 1)
    for allocation, _ in launches:
        assert allocation.wait(20) == 0
        allocation.close()
    assert [said for _, said in launches] == [["1,2 [0, 1]"], ["10 [2]"]]
    allocation, _ = start(launcher, tmp_path, "third", 3)
    assert allocation.wait(20) == 0
    allocation.close()


@pytest.mark.integration
@pytest.mark.usefixtures("det_home")
def test_a_launch_that_fails_holds_no_slots(tmp_path: Path) -> None:
    launcher = LocalLauncher(LocalConfig())
    with pytest.raises(LaunchError, match="cannot start"):
        start(launcher, tmp_path / "missing", "first", 1)
    allocation, _ = start(launcher, tmp_path, "second", 1)
    assert allocation.wait(20) == 0
    allocation.close()


def test_more_than_there_are(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"needs 2 slots and this machine has 1; lower resources.slots_per_trial"):
        start(LocalLauncher(LocalConfig()), tmp_path, "first", 2)
