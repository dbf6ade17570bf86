"""Trials train on the nodes of a cluster as on this machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cluster import RunningCluster
from det_testing.disturbed_experiment import run_experiment
from det_testing.requirements import require_module

from det_core.config import load_config
from det_core.interfaces.records import State, TrialRecord
from det_core.interfaces.tracking import TrackingStore

pytestmark = [pytest.mark.integration, pytest.mark.timeout(280)]

DIGITS = Path(__file__).parents[3] / "examples" / "digits_pytorch"
BACKENDS = [
    ("torch_distributed", "det_torch_distributed", "pip install det-torch-distributed"),
    ("deepspeed", "deepspeed", "pip install deepspeed"),
    ("horovod", "horovod", "python -m det_horovod.build"),
]
"""Names of backends, their libraries, and how to install these."""
SEARCHED = """
import det_core as det

rate = det.get_cluster_info().trial.hparams["rate"]
with det.core.init() as core_context:
    for op in core_context.searcher.operations():
        core_context.train.report_validation_metrics(steps_completed=op.length, metrics={"loss": rate / op.length})
        op.report_completed(rate / op.length)
"""

GPUS = """
import os, time
from pathlib import Path
import det_core as det

trial = det.get_cluster_info().trial
meeting = Path(trial.hparams["meeting"])
(meeting / str(trial.trial_id)).touch()
deadline = time.monotonic() + 60
while len(list(meeting.iterdir())) < 2 and time.monotonic() < deadline:
    time.sleep(0.05)
print("uses", os.environ["CUDA_VISIBLE_DEVICES"], "of", os.environ["DEVICE"])
with det.core.init() as core_context:
    core_context.train.report_validation_metrics(steps_completed=1, metrics={"loss": 1.0})
"""


def run_script(store: TrackingStore, directory: Path, code: str, **keys: Any) -> Sequence[TrialRecord]:
    """Run an experiment whose entrypoint is a script, and return its trials."""
    (directory / "main.py").write_text(code)
    storage = {"type": "directory", "container_path": str(directory / "checkpoints")}
    return run_experiment(
        store, {"entrypoint": "python3 main.py", "checkpoint_storage": storage, "max_restarts": 0, **keys}, directory
    )


@pytest.mark.soak
@pytest.mark.parametrize(("backend", "library", "install"), BACKENDS)
@pytest.mark.usefixtures("cluster")
def test_two_nodes_train_what_one_node_trains(store: TrackingStore, backend: str, library: str, install: str) -> None:
    require_module(library, install)
    metrics = []
    for launcher in ({"type": "ray", "slots_per_node": 1, "resources": {"CPU": 1}}, {"type": "local", "slots": 2}):
        changes = {
            "searcher.max_length": {"epochs": 1},
            "launcher": launcher,
            "resources.slots_per_trial": 2,
            "distributed.backend": backend,
        }
        config = load_config(DIGITS / "const.yaml", [f"{key}={json.dumps(one)}" for key, one in changes.items()])
        (trial,) = run_experiment(store, config.dump(), DIGITS)
        (report,) = store.metrics(trial.id, group="validation")
        metrics.append(dict(report.metrics))
    assert metrics[0] == pytest.approx(metrics[1], rel=1e-4)


@pytest.mark.soak
@pytest.mark.usefixtures("cluster")
def test_a_search_uses_all_nodes_at_once(store: TrackingStore, tmp_path: Path) -> None:
    config = {
        "hyperparameters": {"rate": {"type": "double", "minval": 0.0, "maxval": 1.0}},
        "searcher": {
            "name": "async_halving",
            "metric": "loss",
            "max_length": {"batches": 16},
            "max_trials": 4,
            "max_concurrent_trials": 2,
            "num_rungs": 2,
        },
        "launcher": {"type": "ray", "resources": {"CPU": 1}},
    }
    trials = run_script(store, tmp_path, SEARCHED, **config)
    assert len(trials) == 4 and all(trial.state is State.COMPLETED and not trial.restarts for trial in trials)
    longest = max(trial.steps_completed for trial in trials)
    assert longest == 16 and sum(trial.steps_completed == 16 for trial in trials) < 4


@pytest.mark.slow
def test_slots_are_gpus_if_there_are_any(store: TrackingStore, tmp_path: Path, cluster: RunningCluster) -> None:
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    config = {
        "hyperparameters": {"meeting": str(meeting), "number": {"type": "categorical", "vals": [1, 2]}},
        "searcher": {"name": "grid", "metric": "loss", "max_length": {"batches": 1}},
        "environment": {"environment_variables": {"cpu": ["DEVICE=cpu"], "cuda": ["DEVICE=cuda"]}},
        "launcher": {"type": "ray", "slots_per_node": 2},
    }
    cluster.add_node({"CPU": 1, "GPU": 2})
    try:
        trials = run_script(store, tmp_path, GPUS, **config)
    finally:
        cluster.kill_node(-1)
    lines = [line.log for trial in trials for line in store.logs(trial.id)]
    assert sorted(line for line in lines if line.startswith("uses")) == ["uses 0 of cuda", "uses 1 of cuda"]
