"""The example and the blocks of the page run."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("flax", reason="JAX is in an environment of its own, with which make test-jax runs these tests")

import numpy as np
from det_jax._adapter import JaxAdapter

from det_core.trial import TrialContext

pytestmark = pytest.mark.integration

README = Path(__file__).parents[1] / "README.md"
EXAMPLE = Path(__file__).parents[3] / "examples" / "digits_jax"


def never() -> bool:
    return False


def begin(trial_class: Any, config: Any) -> JaxAdapter:
    context = TrialContext.from_config(config)
    return JaxAdapter(trial_class(context), context, {"hparams": config["hyperparameters"]})


def test_the_example_trains() -> None:
    spec = importlib.util.spec_from_file_location("digits_model_def", EXAMPLE / "model_def.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    adapter = begin(module.DigitsTrial, yaml.safe_load((EXAMPLE / "const.yaml").read_text()))
    adapter.train(20 * adapter.batches_per_epoch, never)  # type: ignore[operator]
    metrics = adapter.validate(never)
    assert metrics and metrics["accuracy"] > 0.96, metrics


def test_the_snippets_of_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = {"hyperparameters": {"global_batch_size": 32, "lr": 0.01}}
    trial, model, loading, plainly = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(trial + model, names)
    for trial_class in ("MyModelTrial", "MyTrial"):
        adapter = begin(names[trial_class], config)
        adapter.train(2, never)
        assert adapter.validate(never)
    (tmp_path / "checkpoint").mkdir()
    adapter.snapshot()(tmp_path / "checkpoint")
    exec(loading + plainly, names)
    assert names["scores"].shape == (1, 10)
    assert np.array_equal(names["params"]["kernel"], names["kernel"])
