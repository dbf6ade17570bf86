"""The command ``det preview-search``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import Det

HYPERPARAMETERS = {
    "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1, "count": 4},
    "model": {"depth": {"type": "int", "minval": 1, "maxval": 2, "count": 5}},
}


@pytest.fixture
def config(tmp_path: Path) -> Any:
    def write(**searcher: Any) -> Path:
        content = {
            "entrypoint": "model_def:Trial",
            "searcher": {"metric": "loss", "max_length": {"batches": 1000}, **searcher},
            "hyperparameters": HYPERPARAMETERS,
            "reproducibility": {"experiment_seed": 3},
        }
        path = tmp_path / "config.yaml"
        path.write_text(yaml.safe_dump(content))
        return path

    return write


def test_asha_is_previewed(det: Det, config: Any, det_home: Path) -> None:
    path = config(name="adaptive_asha", max_trials=64)
    shown = det("preview-search", path)
    assert shown.code == 0
    lines = shown.out.splitlines()
    assert lines[0] == "adaptive_asha: 64 trials"
    assert lines[1] == "bracket 1: rungs at 15, 62, 250, 1000; 45 → 11 → 2 → 0 trials"
    assert "to change it  max_trials; " in shown.out
    assert not det_home.exists()
    found = det("preview-search", path, "--json").json
    assert sum(row["trials"] for row in found["lengths"]) == found["trials"] == 64
    assert found["total"] == sum(row["trials"] * row["length"] for row in found["lengths"])
    assert found["full_trainings"] == found["total"] / 1000 < 16
    assert (found["at_once"], found["unit"]) == (16, "batches")
    assert det("preview-search", path).out == shown.out


def test_a_grid_is_previewed(det: Det, config: Any) -> None:
    out = det("preview-search", config(name="grid")).out
    assert out.splitlines() == [
        "grid: 8 trials",
        "",
        "TRIALS  TRAIN FOR",
        "8       1000 batches",
        "",
        "at once       8 trials",
        "in all        8000 batches, 8.0 full trainings",
        "grid          4 lr x 2 model.depth",
        "to change it  the counts of the hyperparameters, and max_length",
        "Simulated with random metrics; nothing was started.",
    ]


def test_a_length_of_one_has_a_singular_unit(det: Det, config: Any) -> None:
    lines = det("preview-search", config(name="single", max_length={"epochs": 1})).out.splitlines()
    assert "1       1 epoch" in lines
    assert "in all        1 epoch, 1.0 full trainings" in lines


def test_conditional_hyperparameters_are_previewed(det: Det, config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    items = [{"name": "sgd", "momentum": {"type": "double", "minval": 0, "maxval": 0.9}}, {"name": "adamw"}]
    monkeypatch.setitem(HYPERPARAMETERS, "optimizer", {"type": "categorical", "vals": items})
    path = config(name="random", max_trials=3)
    assert det("preview-search", path).out.splitlines()[5:7] == [
        "ONLY SOME TRIALS HAVE  VALUES            IF",
        "optimizer.momentum     double, 0 to 0.9  optimizer is item 1",
    ]
    [found] = det("preview-search", path, "--json").json["conditional"]
    assert found == {"name": "optimizer.momentum", "values": "double, 0 to 0.9", "if": "optimizer is item 1"}


def test_a_command_trains_until_it_ends(det: Det, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("entrypoint: python train.py\nsearcher: {name: random, metric: loss, max_trials: 3}\n")
    assert "3       until they end" in det("preview-search", path).out
    found = det("preview-search", path, "--json").json
    assert (found["lengths"], found["total"]) == ([{"trials": 3, "length": None}], None)


def test_problems_of_the_config_are_reported(det: Det, config: Any) -> None:
    shown = det("preview-search", config(name="random"))
    assert shown.code == 2
    assert "searcher.max_trials: a required key is missing" in shown.err
    assert "max_trials: a required key is missing" in det("preview-search", config(name="adaptive_asha")).err


def test_a_search_that_does_not_end_is_reported(det: Det, config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("det_core.cli.commands.preview_search._MOST_ORDERS", 20)
    shown = det("preview-search", config(name="random", max_trials=21))
    assert (shown.code, "has not ended after 20 orders" in shown.err) == (1, True)
    path = config(name="random", max_trials=20)
    assert det("preview-search", path).code == 0
    monkeypatch.setattr("det_core.cli.commands.preview_search._MOST_SECONDS", 0)
    assert "has not ended after 0 orders" in det("preview-search", path).err
