"""The trial in the README trains."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from det_torch import PyTorchTrialContext
from torch.utils.data import TensorDataset

README = Path(__file__).parents[3] / "README.md"


@pytest.mark.integration
def test_the_snippet_trains() -> None:
    match = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert match

    def load(split: str) -> TensorDataset:
        return TensorDataset(torch.rand(64, 64), torch.randint(10, (64,)))

    namespace: dict[str, Any] = {"load": load}
    exec(match.group(1), namespace)
    context = PyTorchTrialContext.from_config({"hyperparameters": {"lr": 0.1, "global_batch_size": 16}})
    trial = namespace["DigitsTrial"](context)
    model = trial.build_model()
    trial.optimizer(model)
    for batch_idx, batch in enumerate(trial.build_training_data_loader()):
        assert trial.train_batch(batch, model, 0, batch_idx)["loss"].requires_grad
    for batch in trial.build_validation_data_loader():
        assert "validation_loss" in trial.evaluate_batch(batch, model)
