"""The examples train for a few batches with their own configs."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from det_testing.framework.trial_harness import TrialHarness

from det_core.config import parse_config

pytestmark = pytest.mark.integration

EXAMPLES = Path(__file__).parents[3] / "examples"


def load(name: str) -> tuple[Any, dict[str, Any]]:
    """Return the trial class of an example and its config."""
    config = yaml.safe_load((EXAMPLES / name / "const.yaml").read_text())
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / name / "model_def.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, config["entrypoint"].partition(":")[2]), config


@pytest.mark.parametrize(("name", "metric"), [("digits_estimator", "auc"), ("linear_estimator", "average_loss")])
def test_the_example_learns(make_laboratory: Callable[..., TrialHarness], name: str, metric: str) -> None:
    trial_class, config = load(name)
    config.pop("min_checkpoint_period", None)
    harness = make_laboratory(
        trial_class, **{**config, "min_validation_period": {"batches": 4}, "perform_initial_validation": True}
    )
    trial_id = harness.prepare(length={"batches": 4})
    harness.train(trial_id)
    losses = [report.metrics["loss"] for report in harness.store.metrics(trial_id, group="validation")]
    assert losses == sorted(losses, reverse=True)
    assert metric in list(harness.store.metrics(trial_id, group="validation"))[-1].metrics


@pytest.mark.parametrize("name", ["digits_estimator", "linear_estimator"])
def test_the_distributed_config_differs_only_in_its_slots(name: str) -> None:
    one, several = (
        parse_config(yaml.safe_load((EXAMPLES / name / f"{file}.yaml").read_text()))
        for file in ("const", "distributed")
    )
    assert several.resources.slots_per_trial == 2
    assert (one.hyperparameters, one.searcher, one.entrypoint) == (
        several.hyperparameters,
        several.searcher,
        several.entrypoint,
    )
