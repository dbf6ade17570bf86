"""Batch inference with `torch_batch_process`."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from det_torch.batch_processing import TorchBatchProcessor, TorchBatchProcessorContext, _Inference, torch_batch_process
from torch.utils.data import TensorDataset

from det_core import core
from det_core.errors import InvalidTrial
from det_core.interfaces.records import State
from det_core.tracking import open_store

RECORDS = torch.arange(10.0)
DATASET = TensorDataset(RECORDS)

SCRIPT = """
import os, signal, sys
from pathlib import Path

import torch
from det_torch.batch_processing import TorchBatchProcessor, torch_batch_process
from torch.utils.data import TensorDataset


class Sums(TorchBatchProcessor):
    def __init__(self, context):
        self.context, self.rows = context, []
        self.mean = context.wrap_reducer(lambda values: sum(values) / len(values), "mean")

    def process_batch(self, batch, batch_idx):
        mark = Path(sys.argv[2])
        if batch_idx == 3 and self.context.get_distributed_rank() == 0 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        self.rows += self.context.to_device(batch)[0].tolist()
        self.mean.update(batch[0].sum().item())
        self.last = batch_idx

    def on_checkpoint_start(self):
        with self.context.upload_path() as path:
            (path / f"{self.last}.txt").write_text(repr(self.rows))
        self.rows = []


torch_batch_process(Sums, TensorDataset(torch.arange(float(sys.argv[1]))), batch_size=2, checkpoint_interval=2)
"""


class Sums(TorchBatchProcessor):
    seen: list[tuple[int, list[float]]]
    events: list[str]

    def __init__(self, context: TorchBatchProcessorContext) -> None:
        type(self).seen, type(self).events = [], []
        self.context = context
        self.total = context.wrap_reducer(sum, "total")

    def process_batch(self, batch: Any, batch_idx: int) -> None:
        self.seen.append((batch_idx, batch[0].tolist()))
        self.total.update(batch[0].sum().item())  # type: ignore[attr-defined]

    def on_checkpoint_start(self) -> None:
        self.events.append(f"checkpoint {len(self.seen)}")

    def on_finish(self) -> None:
        self.events.append("finish")


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))


def test_every_batch_is_processed_once_in_order() -> None:
    torch_batch_process(Sums, DATASET, batch_size=4, checkpoint_interval=2)
    assert Sums.seen == [(0, [0, 1, 2, 3]), (1, [4, 5, 6, 7]), (2, [8, 9])]
    assert Sums.events == ["checkpoint 2", "checkpoint 3", "finish"]
    with open_store() as store:
        (trial,) = store.trials(store.experiments()[0].id)
        (report,) = store.metrics(trial.id)
        assert (report.group, report.steps_completed, dict(report.metrics)) == ("validation", 3, {"total": 45})
        steps = sorted(one.steps_completed for one in store.checkpoints(trial_id=trial.id))
        assert steps == [2, 3]


@pytest.mark.parametrize(
    ("arguments", "batches"),
    [
        ({"batch_size": 4, "max_batches": 2}, 2),
        ({"batch_size": 4, "max_batches": 9}, 3),
        ({"dataloader_kwargs": {"batch_size": 5}}, 2),
        ({"dataloader_kwargs": {"batch_size": 4, "drop_last": True}}, 2),
        ({}, 10),
    ],
)
def test_arguments_determine_the_number_of_batches(arguments: Any, batches: int) -> None:
    torch_batch_process(Sums, DATASET, **arguments)
    assert len(Sums.seen) == batches


def test_a_maximum_below_one_is_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    torch_batch_process(Sums, DATASET, batch_size=5, max_batches=0)
    assert len(Sums.seen) == 2
    assert "max_batches is 0, which is ignored" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"checkpoint_interval": 0}, "checkpoint_interval is 0; expected"),
        ({"batch_size": 2, "dataloader_kwargs": {"batch_size": 2}}, "batch_size is an argument and in"),
        ({"dataloader_kwargs": {"shuffle": True}}, "dataloader_kwargs has shuffle; remove it"),
        ({"dataloader_kwargs": {"sampler": [1]}}, "dataloader_kwargs has sampler; remove it"),
        ({"dataset": iter([1])}, "expected one with __len__ and __getitem__"),
    ],
)
def test_unusable_arguments_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        torch_batch_process(Sums, **{"dataset": DATASET, **arguments})


def test_uploaded_files_are_in_the_storage_of_checkpoints(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Upload(Sums):
        def on_finish(self) -> None:
            with self.context.upload_path() as path:
                (path / "inner").mkdir()
                (path / "inner" / "seen.txt").write_text(str(self.seen))

    with caplog.at_level(logging.INFO, "det.torch"):
        torch_batch_process(Upload, DATASET, batch_size=10)
    (stored,) = (tmp_path / "home").rglob("seen.txt")
    assert stored.parts[-3:] == ("rank_0", "inner", "seen.txt")
    assert stored.read_text() == str(Upload.seen)
    assert f"the files of upload_path() are in file://{stored.parents[2]}" in caplog.text


def test_another_number_of_slots_is_refused() -> None:
    run = SimpleNamespace(
        latest_checkpoint="abc",
        checkpoint=SimpleNamespace(get_metadata=lambda storage_id: {"steps_completed": 2, "slots": 3}),
        distributed=core.single_process(),
    )
    with pytest.raises(InvalidTrial, match="the checkpoint abc was saved by 3 slots, which divide"):
        _Inference(run, Sums)  # type: ignore[arg-type]


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize("slots", [pytest.param(1, marks=pytest.mark.soak), 2])
def test_a_crashed_trial_continues_after_its_checkpoint(slots: int, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "process.py").write_text(SCRIPT)
    records = 14 * slots
    script = f"python3 process.py {records} {tmp_path / 'crashed'}"
    config = {
        "name": "inference",
        "entrypoint": script if slots == 1 else f"python3 -m det_core.launch torch_distributed -- {script[8:]}",
        "searcher": {"name": "single", "metric": "mean", "max_length": {"batches": 1}},
        "max_restarts": 1,
        "checkpoint_storage": {"type": "directory", "container_path": str(tmp_path / "stored")},
        "resources": {"slots_per_trial": slots},
        "launcher": {"type": "local", "slots": slots},
    }
    if slots > 1:
        pytest.importorskip("det_torch_distributed")
    (code / "const.yaml").write_text(yaml.safe_dump(config))
    det = str(Path(sys.executable).with_name("det"))
    ran = subprocess.run([det, "run", "const.yaml"], cwd=code, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]

    with open_store() as store:
        (experiment,) = store.experiments()
        assert experiment.state is State.COMPLETED
        (trial,) = store.trials(experiment.id)
        assert trial.restarts == 1
        (report,) = store.metrics(trial.id)
    sums = [4 * number + 1 for number in range(7 * slots)]
    assert dict(report.metrics) == {"mean": sum(sums) / len(sums)}
    written = [file.read_text() for file in (tmp_path / "stored").rglob("*.txt")]
    assert len(written) == 4 * slots
    assert sorted(value for text in written for value in yaml.safe_load(text)) == list(range(records))
