"""Every example learns, and reaches the metrics in examples/README.md."""

from __future__ import annotations

import importlib
import operator
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch
import yaml
from det_torch._starter.model_def import IrisTrial
from torch import nn

from det_core.interfaces.tracking import TrackingStore
from det_core.trial import load_trial_class

EXAMPLES = Path(__file__).parents[3] / "examples"
DET = Path(sys.executable).parent / "det"


Bounds: TypeAlias = dict[str, tuple[Callable[[float, float], bool], float]]

LEARNED: dict[str, tuple[dict[str, int], Bounds]] = {
    "image_classifier_pytorch": ({"epochs": 16}, {"accuracy": (operator.ge, 0.967)}),
    "multi_input_output_pytorch": (
        {"epochs": 28}, {"sum_accuracy": (operator.ge, 0.84), "larger_accuracy": (operator.ge, 0.94)}
    ),
    "gan_pytorch": ({"epochs": 60}, {"told_apart": (operator.le, 0.93)}),
    "language_model_pytorch": ({"batches": 50}, {"perplexity": (operator.le, 20)}),
    "tabular_regression_pytorch": (
        {"epochs": 10}, {"r2": (operator.ge, 0.46), "mean_absolute_error": (operator.le, 0.6)}
    ),
}  # fmt: skip
"""Bounds that a broken model cannot reach, after a part of the training."""
RESULTS: dict[str, Bounds] = {
    "digits_pytorch": {"accuracy": (operator.ge, 0.97)},
    "digits_pytorch_context": {"accuracy": (operator.ge, 0.97)},
    "image_classifier_pytorch": {"accuracy": (operator.ge, 0.975)},
    "multi_input_output_pytorch": {"sum_accuracy": (operator.ge, 0.88), "larger_accuracy": (operator.ge, 0.94)},
    "gan_pytorch": {"told_apart": (operator.le, 0.92)},
    "language_model_pytorch": {"perplexity": (operator.le, 5.8)},
    "tabular_regression_pytorch": {"r2": (operator.ge, 0.46), "mean_absolute_error": (operator.le, 0.6)},
}
"""Slightly weaker bounds than the metrics in examples/README.md, after the whole training."""


def test_the_accuracy_of_the_starter_is_the_share_of_correct_species(make_context: Any) -> None:
    scores = torch.tensor([[3.0, 1, 2], [0, 5, 1], [0, 1, 4], [9, 0, 0]])
    metrics = IrisTrial(make_context()).evaluate_batch((scores, torch.tensor([0, 1, 2, 1])), nn.Identity())
    assert metrics["accuracy"].item() == 0.75


def train_example(
    name: str, length: dict[str, int] | None, train: Callable[..., int], patch: pytest.MonkeyPatch
) -> int:
    """Train an example with a single validation, at its end, and return the id of the trial."""
    config: dict[str, Any] = yaml.safe_load((EXAMPLES / name / "const.yaml").read_text())
    searcher = config["searcher"]
    searcher["max_length"] = config["min_validation_period"] = length or searcher["max_length"]
    patch.syspath_prepend(EXAMPLES / name)
    patch.delitem(sys.modules, "model_def", raising=False)
    importlib.invalidate_caches()
    try:
        return train(load_trial_class(config["entrypoint"]), config)
    finally:
        del sys.modules["model_def"]


def check(bounds: Bounds, store: TrackingStore, trial_id: int) -> None:
    (validation,) = store.metrics(trial_id, group="validation")
    for metric, (compare, bound) in bounds.items():
        assert compare(validation.metrics[metric], bound), (metric, validation.metrics)


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNED)
def test_the_example_learns(
    name: str, train: Callable[..., int], store: TrackingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    length, bounds = LEARNED[name]
    check(bounds, store, train_example(name, length, train, monkeypatch))


@pytest.mark.integration
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name",
    [*sorted(RESULTS.keys() - LEARNED.keys()), *(pytest.param(name, marks=pytest.mark.soak) for name in LEARNED)],
)
def test_the_example_reaches_the_result_in_its_readme(
    name: str, train: Callable[..., int], store: TrackingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(RESULTS[name], store, train_example(name, None, train, monkeypatch))


@pytest.mark.integration
@pytest.mark.slow
def test_the_search_finds_a_good_trial(tmp_path: Path, store: TrackingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DET_INFO_DIR")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    config = (EXAMPLES / "digits_pytorch" / "adaptive.yaml").read_text()
    short = tmp_path / "adaptive.yaml"
    short.write_text(config.replace("max_trials: 16", "max_trials: 3"))
    command = [DET, "run", short, EXAMPLES / "digits_pytorch"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=540)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    assert len(store.trials(1)) == 3
    best = store.best_validation(1, "validation_loss", smaller_is_better=True)
    assert best is not None
    assert best[0] < 0.2


def test_every_example_is_in_the_readme_and_trained() -> None:
    readme = (EXAMPLES / "README.md").read_text()
    names = [path.parent.name for path in EXAMPLES.glob("*/const.yaml")]
    assert [name for name in names if f"]({name}/" not in readme] == []
    assert set(RESULTS) == {name for name in names if "pytorch" in name}
