"""Translation of the searchers of old configs."""

from __future__ import annotations

from typing import Any

import pytest

from det_core.config import parse_config

STEPS = "this config counts in steps, as in release 0.12: read as 100 batches per step"
GONE = "the search method {} no longer exists: read as {}, where no trial waits for the others"

# old searcher, translated searcher, notices
OLD: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
    (
        {"name": "adaptive_simple", "max_steps": 5, "max_trials": 16, "mode": "aggressive", "max_rungs": 3},
        {"name": "adaptive_asha", "max_length": {"batches": 500}, "max_trials": 16, "mode": "aggressive"},
        [
            GONE.format("adaptive_simple", "adaptive_asha"),
            f"{STEPS}, searcher.max_steps became max_length",
        ],
    ),
    (
        {
            "name": "adaptive",
            "target_trial_steps": 5,
            "step_budget": 50,
            "train_stragglers": True,
            "bracket_rungs": [2],
        },
        {"name": "adaptive_asha", "max_length": {"batches": 500}, "budget": {"batches": 5000}, "bracket_rungs": [2]},
        [
            GONE.format("adaptive", "adaptive_asha") + "; train_stragglers is ignored",
            f"{STEPS}, searcher.target_trial_steps became max_length, searcher.step_budget became budget",
        ],
    ),
    (
        {"name": "sync_halving", "num_rungs": 3, "max_length": {"epochs": 9}, "budget": {"epochs": 90}},
        {"name": "async_halving", "num_rungs": 3, "max_length": {"epochs": 9}, "budget": {"epochs": 90}},
        [GONE.format("sync_halving", "async_halving")],
    ),
    (
        {"name": "async_halving", "num_rungs": 3, "target_trial_steps": 9, "max_trials": 4},
        {"max_length": {"batches": 900}, "max_trials": 4},
        [f"{STEPS}, searcher.target_trial_steps became max_length"],
    ),
    (
        {
            "name": "pbt",
            "population_size": 4,
            "num_rounds": 2,
            "steps_per_round": 3,
            "replace_function": {"truncate_fraction": 0.25},
            "explore_function": {"resample_probability": 0.2, "perturb_factor": 0.2},
        },
        {"length_per_round": {"batches": 300}},
        [f"{STEPS}, searcher.steps_per_round became length_per_round"],
    ),
    (
        {"name": "adaptive_asha", "max_time": 8, "time_metric": "epochs", "max_trials": 4},
        {"max_length": {"epochs": 8}, "stop_once": True},
        ["searcher.max_time became max_length, and stop_once is true, as in release 0.38"],
    ),
    (
        {"name": "adaptive_asha", "max_time": 8, "time_metric": "seconds", "max_trials": 4, "stop_once": False},
        {"max_length": 8, "stop_once": False},
        ["searcher.max_time became max_length"],
    ),
]


@pytest.mark.parametrize(("searcher", "meaning", "notices"), OLD, ids=[old["name"] for old, _, _ in OLD])
def test_old_searchers_are_translated(searcher: dict[str, Any], meaning: dict[str, Any], notices: list[str]) -> None:
    config = parse_config({"entrypoint": "model:Trial", "searcher": {"metric": "loss", **searcher}})
    found = config.dump()["searcher"]
    assert {key: found[key] for key in meaning} == meaning
    assert list(config.notices) == notices
    assert parse_config(config.dump()).notices == ()
