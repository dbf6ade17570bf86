"""The TensorFlow examples train for a few batches on two slots, as with ``det run distributed.yaml``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from det_core.interfaces.records import State
from det_core.tracking import open_store

if find_spec("tensorflow") is None:
    pytest.skip("TensorFlow is not installed; it needs Python 3.10 or 3.11", allow_module_level=True)

EXAMPLES = Path(__file__).parents[3] / "examples"
BATCHES = 4


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits_estimator", "linear_estimator", "iris_keras"])
def test_the_example_trains_on_two_slots(name: str, horovod: None, tmp_path: Path) -> None:
    code = Path(shutil.copytree(EXAMPLES / name, tmp_path / "code"))
    file = code / "distributed.yaml"
    config = yaml.safe_load(file.read_text())
    config["searcher"]["max_length"] = {"batches": BATCHES}
    config |= {"perform_initial_validation": True, "min_validation_period": {"batches": BATCHES}}
    file.write_text(yaml.safe_dump(config))
    environment = {**os.environ, "DET_HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1"}
    det = Path(sys.executable).with_name("det")
    done = subprocess.run([det, "run", file], env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    with open_store(f"sqlite:///{tmp_path / 'home' / 'det.db'}") as store:
        (trial,) = store.trials(1)
        first, last = store.metrics(trial.id, group="validation")
        assert (trial.state, trial.steps_completed, trial.restarts) == (State.COMPLETED, BATCHES, 0)
        assert last.metrics[config["searcher"]["metric"]] < first.metrics[config["searcher"]["metric"]]
        assert {line.rank for line in store.logs(trial.id)} >= {0, 1}
