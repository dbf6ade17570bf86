"""The SDK in forked children."""

from __future__ import annotations

import pytest

from det_core.experimental import Determined

from ..cli.conftest import Record
from ..forked_child import call_in_child, ending_children, public_classes

REFUSED = {
    *(f"experiment.{name}" for name in ("activate", "cancel", "kill", "pause")),
    *("trial.kill", "trial.select_checkpoint", "model.register_version"),
    *("client.create_experiment", "checkpoint.load", "version.load"),
    *("checkpoint.export", "version.export"),
}
"""Methods that refuse the arguments, or an experiment that has ended, in any process."""


@pytest.mark.integration
def test_each_method_works_in_a_forked_child(trained: Record) -> None:
    client = Determined()
    experiment, trial, model = client.get_experiment(1), client.get_trial(1), client.create_model("digits")
    objects = {
        "client": client,
        "experiment": experiment,
        "trial": trial,
        "version": model.register_version("best-one"),
        "model": model,
        "checkpoint": client.get_checkpoint("last-one"),
    }
    arguments = {
        "checkpoint_uuid": "last-one",
        "client.create_experiment.config": "missing.yaml",
        "client.create_model.name": "another",
        "client.get_model.name": "digits",
        "description": "0 to 9",
        "experiment_id": 1,
        "keys": ["seen"],
        "labels": ["small"],
        "limit": 1,
        "metadata": {"seen": True},
        "name": "stable",
        "notes": "fine",
        "trial_id": 1,
        "trial_ids": [1],
        "uuid": "best-one",
    }
    with ending_children():
        outcomes = call_in_child(objects, arguments)
    walked = {type(one).__name__ for one in objects.values()}
    assert public_classes("det_core.experimental", "det_core.experimental.client") <= walked
    assert {name for name, outcome in outcomes.items() if outcome} == REFUSED, outcomes
