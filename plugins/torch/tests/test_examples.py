"""Every example runs as a user would run it, and reaches the metrics in examples/README.md."""

from __future__ import annotations

import operator
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from det_core.tracking import open_store

EXAMPLES = Path(__file__).parents[3] / "examples"
DET = Path(sys.executable).parent / "det"

EXPECTED: dict[str, dict[str, tuple[Callable[[float, float], bool], float]]] = {
    "image_classifier_pytorch": {"accuracy": (operator.ge, 0.975)},
    "multi_input_output_pytorch": {"sum_accuracy": (operator.ge, 0.88), "larger_accuracy": (operator.ge, 0.94)},
    "gan_pytorch": {"told_apart": (operator.le, 0.92)},
    "language_model_pytorch": {"perplexity": (operator.le, 5.8)},
    "tabular_regression_pytorch": {"r2": (operator.ge, 0.46), "mean_absolute_error": (operator.le, 0.6)},
}
"""Bounds of the metrics of the last validation, which a broken model cannot reach.

They are slightly weaker than the metrics in examples/README.md."""


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", EXPECTED)
def test_the_example_learns(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_HOME", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # more threads are not faster with models of this size
    command = [DET, "run", EXAMPLES / name / "const.yaml"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=540)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    with open_store() as store:
        *_, last = store.metrics(1, group="validation")
        assert store.trial(1).restarts == 0
    for metric, (compare, bound) in EXPECTED[name].items():
        assert compare(last.metrics[metric], bound), (metric, last.metrics)


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_search_finds_a_good_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_HOME", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    config = (EXAMPLES / "digits_pytorch" / "adaptive.yaml").read_text()
    short = tmp_path / "adaptive.yaml"
    short.write_text(config.replace("max_trials: 16", "max_trials: 5"))
    command = [DET, "run", short, EXAMPLES / "digits_pytorch"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=540)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    with open_store() as store:
        assert len(store.trials(1)) == 5
        best = store.best_validation(1, "validation_loss", smaller_is_better=True)
    assert best is not None
    assert best[0] < 0.2


def test_the_readme_has_every_example() -> None:
    readme = (EXAMPLES / "README.md").read_text()
    names = [path.parent.name for path in EXAMPLES.glob("*/const.yaml")]
    assert [name for name in names if f"]({name}/model_def.py)" not in readme] == []
    assert set(EXPECTED) <= set(names)
