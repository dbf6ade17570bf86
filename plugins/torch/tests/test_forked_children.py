"""What forked children, such as the workers of a DataLoader, can do with the context of a trial."""

from __future__ import annotations

import time

import det_torch
import pytest
import torch
from torch import nn

from tests.forked_child import call_in_child, ending_children

RecordWriter = pytest.importorskip("tensorboard.summary.writer.record_writer").RecordWriter


@pytest.mark.integration
def test_each_method_of_the_context_works_in_a_child_or_says_where_to_call_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A child that leaves the block neither waits for the thread of the TensorBoard writer nor removes its files."""
    hparams = {"global_batch_size": 4, "rate": 0.1}
    with ending_children(), det_torch.init(hparams=hparams, quiet=True) as context:
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
        }
        monkeypatch.setattr(RecordWriter, "write", lambda self, data: time.sleep(0.05))
        for step in range(5):  # which its thread is still writing when the child starts
            board.add_scalar("x", step, step)
        outcomes = call_in_child({"context": context, "experimental": context.experimental}, arguments)
        assert context.get_tensorboard_path().is_dir()
    assert "belongs to process" in outcomes.pop("context.get_tensorboard_writer")
    refused = {name for name, outcome in outcomes.items() if outcome}
    assert refused == {"context.configure_apex_amp", "experimental.use_amp"}, outcomes  # as in any process
