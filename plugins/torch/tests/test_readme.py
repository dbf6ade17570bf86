"""The code in the READMEs runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from det_torch import PyTorchTrialContext
from torch.utils.data import TensorDataset

from det_core import get_cluster_info
from det_core.tracking import open_store

README = Path(__file__).parents[3] / "README.md"
OWN_README = Path(__file__).parents[1] / "README.md"


@pytest.mark.integration
def test_the_snippet_of_the_readme_trains() -> None:
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


def test_every_snippet_of_det_torch_runs_after_the_ones_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DET_INFO_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    get_cluster_info.cache_clear()
    trial, script, *loading = re.findall(r"```python\n(.*?)```", OWN_README.read_text(), re.DOTALL)
    namespace: dict[str, Any] = {"__name__": "readme"}
    exec(trial, namespace)
    exec(script, namespace)
    with open_store() as store:
        saved = store.checkpoints(trial_id=1)
    assert [row.steps_completed for row in saved] == [10, 20, 30, 40, 60]
    Path("checkpoint").symlink_to(Path(saved[-1].storage["container_path"], saved[-1].uuid))
    for snippet in loading:
        exec(snippet, namespace)
    assert namespace["scores"].shape == (1, 10)
    loaded, plain = namespace["trial"].context.models[0], namespace["model"]
    assert torch.equal(loaded.weight, plain.weight)
