"""What forked children, such as the workers of a DataLoader, can do with the context of a trial."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import det_torch
import pytest
import torch
from det_torch.batch_processing import TorchBatchProcessorContext, _Output
from torch import nn

from det_core import core, storage
from det_core.experimental import Determined
from det_core.storage.config import DirectoryConfig
from tests.forked_child import call_in_child, ending_children, fork_before, public_blocks, public_classes

WITHOUT_PROCESS = {"ClipGradsL2Norm", "ClipGradsL2Value", "DataLoader", "LRScheduler", "PyTorchCallback"}
"""Classes whose objects have neither threads nor connections nor files."""
REFUSED = {"batches.report_metrics", "context.get_tensorboard_writer", "trainer.fit", "writer.writer"}
"""Methods that need a thread of the parent."""

RecordWriter = pytest.importorskip("tensorboard.summary.writer.record_writer").RecordWriter


class Still(det_torch.PyTorchTrial):
    """Trial without a model."""

    def __init__(self, context: det_torch.PyTorchTrialContext) -> None:
        self.context = context

    def build_training_data_loader(self) -> det_torch.DataLoader[Any]:
        return det_torch.DataLoader([1, 2], 1)

    build_validation_data_loader = build_training_data_loader

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        return {"loss": 1.0}

    def evaluate_batch(self, batch: Any) -> dict[str, Any]:
        return {"loss": 1.0}


def batch_context(run: core.Context, directory: Path) -> TorchBatchProcessorContext:
    manager = storage.open_storage("directory", DirectoryConfig(container_path=directory / "outputs"))
    return TorchBatchProcessorContext(run, _Output(manager, "output-1", "rank_0"))


@pytest.mark.integration
def test_each_method_of_the_context_works_in_a_child_or_says_where_to_call_it(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """A child that leaves the block neither waits for the thread of the TensorBoard writer nor removes its files."""
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    hparams = {"global_batch_size": 4, "rate": 0.1}
    searcher = {"name": "single", "metric": "loss", "max_length": {"batches": 1}}
    with (
        ending_children(),
        det_torch.init(hparams=hparams, exp_conf={"searcher": searcher}, quiet=True) as context,
    ):
        with context._core.checkpoint.store_path({"steps_completed": 0}) as (_, saved):
            pass
        model = context.wrap_model(nn.Linear(1, 1))
        optimizer = context.wrap_optimizer(torch.optim.SGD(model.parameters(), 0.1))
        board = context.get_tensorboard_writer()
        arguments = {
            "data": torch.ones(1),
            "enable_tensorboard_logging": True,
            "for_training": True,
            "loss": model(torch.ones(1)).sum(),
            "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1),
            "model": nn.Linear(1, 1),
            "models": [model],
            "name": "rate",
            "optimizer": optimizer,
            "optimizers": [optimizer],
            "context.wrap_optimizer.optimizer": torch.optim.SGD(model.parameters(), 0.1),
            "reducer": sum,
            "scaler": torch.amp.GradScaler("cpu"),
            "step_mode": det_torch.LRScheduler.StepMode.STEP_EVERY_BATCH,
            "stop_requested": True,
            "group": "outputs",
            "metrics": {"rows": 1},
            "steps_completed": 1,
            "checkpoint": saved,
            "model_version": Determined().create_model("m").register_version(saved),
        }
        objects = {
            "context": context,
            "experimental": context.experimental,
            "batches": batch_context(context._core, tmp_path),
            "trainer": det_torch.Trainer(Still(context), context),
            "writer": det_torch.TorchWriter(),
        }
        monkeypatch.setattr(RecordWriter, "write", lambda self, data: time.sleep(0.05))
        for step in range(5):  # which its thread is still writing when the child starts
            board.add_scalar("x", step, step)
        outcomes = call_in_child(objects, arguments)
        assert context.get_tensorboard_path().is_dir()
    walked = {base.__name__ for one in objects.values() for base in type(one).__mro__}
    assert public_classes("det_torch", "det_torch.batch_processing") - WITHOUT_PROCESS <= walked
    assert {name for name, outcome in outcomes.items() if "belongs to process" in outcome} == REFUSED
    refused = {name for name, outcome in outcomes.items() if outcome} - REFUSED
    assert refused == {"context.configure_apex_amp", "experimental.use_amp"}, outcomes  # as in any process


@pytest.mark.integration
def test_a_child_that_leaves_the_blocks_of_its_parent_stores_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    with ending_children(), core.init(quiet=True) as run:
        context = batch_context(run, tmp_path)
        with context.upload_path() as path:
            (path / "early").touch()
            if not fork_before():
                assert not [*tmp_path.rglob("early")]
                (path / "early").rename(path / "late")
    assert [file.name for file in tmp_path.rglob("late")] == ["late"]
    assert not [*tmp_path.rglob("early")]
    blocks = {"init", "TorchBatchProcessorContext.upload_path"}
    assert public_blocks("det_torch", "det_torch.batch_processing") == blocks
