"""The command ``det tensorboard``, and the directories that it shows."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import google_crc32c
import pytest

from det_core import core
from det_core.cli.commands.tensorboard import TensorboardFolder
from det_core.interfaces.storage import StorageManager
from det_core.storage import ObjectStorage, open_storage
from det_core.storage.config import DirectoryConfig

from ..storage.memory import MemoryBucket
from .conftest import Det, Record


@pytest.fixture
def reported() -> None:
    """Record experiment 1 by a script that writes TensorBoard files."""
    with core.init() as context:
        context.train.report_training_metrics(1, {"loss": 0.5})


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.usefixtures("reported")
def test_an_experiment_is_shown_until_ctrl_c() -> None:
    command = [sys.executable, "-m", "det_core.cli", "tensorboard", "1", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        watchdog = threading.Timer(120, process.kill)
        watchdog.start()
        try:
            assert process.stdout
            found = next(match for line in process.stdout if (match := re.search(r"http://127\.0\.0\.1:\d+/", line)))
            with urllib.request.urlopen(f"{found.group()}data/logdir", timeout=60) as answer:
                directory = Path(json.load(answer)["logdir"])
            (trial,) = (directory / "experiment_1").iterdir()
            assert trial.name == "trial_1"
            assert any("tfevents" in path.name for path in trial.iterdir())
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
            assert not directory.exists()
        finally:
            watchdog.cancel()
            process.kill()


def test_missing_experiments_and_files_are_reported(det: Det, record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    result = det("tensorboard")
    assert (result.code, "EXPERIMENT_ID" in result.err) == (2, True)
    assert "no experiment 9" in det("tensorboard", 9).err
    assert "no TensorBoard files" in det("tensorboard", "--trial", 1).err
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install tensorboard" in det("tensorboard", 1).err


class Far(StorageManager):
    """Storage without local paths, such as an object store."""

    def __init__(self, near: StorageManager) -> None:
        self._near = near

    def put(self, storage_id: str, path: str, source: Path) -> str | None:
        return self._near.put(storage_id, path, source)

    def get(self, storage_id: str, path: str, target: Path) -> str | None:
        return self._near.get(storage_id, path, target)

    def list(self, storage_id: str) -> dict[str, int]:
        return self._near.list(storage_id)

    def delete(self, storage_id: str, paths: Sequence[str]) -> None:
        self._near.delete(storage_id, paths)


@pytest.fixture(params=["here", "here and growing", "far"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> TensorboardFolder:
    config = DirectoryConfig.model_validate({"container_path": str(tmp_path / "storage")})
    near = open_storage("directory", config)
    (tmp_path / "show").mkdir()
    return TensorboardFolder(
        storage=Far(near) if request.param == "far" else near,
        storage_id="cluster",
        prefix="tensorboard/experiment/1/trial/",
        trial_id=None,
        target=tmp_path / "show",
        grows=request.param == "here and growing",
    )


def write(path: Path, text: str) -> None:
    """Replace the file by a new one, as the storage does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    (path.parent / "new").write_text(text)
    (path.parent / "new").replace(path)


def test_new_and_growing_files_are_shown(folder: TensorboardFolder, tmp_path: Path) -> None:
    assert folder.bring() == 0
    stored = tmp_path / "storage" / "cluster" / folder.prefix
    for name in ("3/1.tfevents", "3/train/1.tfevents", "3/trace.json", "4/1.tfevents", "../2/1.tfevents"):
        write(stored / name, "one")
    assert folder.bring() == 2
    shown = folder.target
    assert sorted(path.name for path in shown.glob("trial*")) == ["trial_3", "trial_4"]
    assert (shown / "trial_3" / "train" / "1.tfevents").read_text() == "one"
    with (shown / "trial_3" / "1.tfevents").open() as opened:
        assert opened.read() == "one"
        write(stored / "3" / "1.tfevents", "one and two")
        write(stored / "3" / "trace.json", "other")
        write(stored / "5" / "1.tfevents", "x")
        assert folder.bring() == 3
        assert opened.read() == (" and two" if folder.grows or isinstance(folder.storage, Far) else "")
    assert (shown / "trial_3" / "1.tfevents").read_text() == "one and two"
    assert (shown / "trial_3" / "trace.json").read_text() == "other"
    assert (shown / "trial_5" / "1.tfevents").read_text() == "x"


def test_a_folder_can_show_one_trial_only(folder: TensorboardFolder, tmp_path: Path) -> None:
    folder.trial_id = 4
    stored = tmp_path / "storage" / "cluster" / folder.prefix
    for trial in ("3", "4", "44"):
        (stored / trial).mkdir(parents=True)
        (stored / trial / "events").write_text("x")
    assert folder.bring() == 1
    assert [path.name for path in folder.target.iterdir()] == ["trial_4"]
    assert [path.name for path in (folder.target / "trial_4").iterdir()] == ["events"]


def test_objects_are_not_copied_outside_the_directory(tmp_path: Path) -> None:
    """Names of objects come from anyone with write access to the bucket."""
    bucket = MemoryBucket()
    prefix = "tensorboard/experiment/1/trial/"
    names = ("3/events", f"3/{tmp_path}/evil", "3/../../evil", "3/a\0b", "3/a//b", "../evil", "/evil", "3/")
    for name in names:
        bucket.put(f"cluster/{prefix}{name}", b"x", google_crc32c.value(b"x"))
    (tmp_path / "show").mkdir()
    folder = TensorboardFolder(
        storage=ObjectStorage(bucket, ""),
        storage_id="cluster",
        prefix=prefix,
        trial_id=None,
        target=tmp_path / "show",
        grows=True,
    )
    folder.bring()
    copied = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(copied) == ["show/trial_../evil", "show/trial_/evil", "show/trial_3/events"]
