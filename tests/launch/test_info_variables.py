"""The environment that describes a task."""

from __future__ import annotations

import json
import subprocess
import sys

from det_core.launch.worker_environment import find_oversized_variables, make_info_variables


def test_texts_are_passed_as_they_are_and_other_values_as_json() -> None:
    info = {
        "cluster.json": {"cluster_id": "local", "slot_ids": [0, 1], "latest_checkpoint": None, "session_token": "x"},
        "trial.json": {"trial_id": 3, "hparams": {"lr": 0.1}, "steps_completed": 0},
    }
    assert make_info_variables(info) == {
        "DET_CLUSTER_ID": "local",
        "DET_SLOT_IDS": "[0, 1]",
        "DET_TRIAL_ID": "3",
        "DET_HPARAMS": json.dumps({"lr": 0.1}),
        "DET_STEPS_COMPLETED": "0",
    }


def test_the_longest_variable_can_be_passed() -> None:
    fits = {"NAME": "é" * ((131_072 - len("NAME=\0")) // 2)}
    assert find_oversized_variables(fits) == []
    subprocess.run([sys.executable, "-c", ""], env=fits, check=True, timeout=60)
    assert find_oversized_variables({"NAME": fits["NAME"] + "xx"}) == ["NAME"]
