"""Trials on several nodes, searches, and GPUs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster
from det_testing.disturbed_experiment import run_experiment
from det_testing.requirements import require_module

from det_core.config import load_config, parse_config
from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import ExperimentRunner, submit_experiment

pytestmark = [pytest.mark.integration, pytest.mark.timeout(280)]
DIGITS = Path(__file__).parents[3] / "examples" / "digits_pytorch"
BACKENDS = [
    ("torch_distributed", "det_torch_distributed", "pip install det-torch-distributed"),
    pytest.param("deepspeed", "deepspeed", "pip install deepspeed", marks=pytest.mark.soak),
    pytest.param("horovod", "horovod", "python -m det_horovod.build", marks=pytest.mark.soak),
]
"""Names of backends, their libraries, and how to install these."""
SEARCH = """
import time
import det_core as det

with det.core.init() as core_context:
    steps = 0
    for operation in core_context.searcher.operations():
        while steps < operation.length:
            steps += 1
            time.sleep(0.1)
        loss = det.get_cluster_info().trial.hparams["x"] / steps
        core_context.train.report_validation_metrics(steps_completed=steps, metrics={"loss": loss})
        operation.report_completed(loss)
"""


def digits_config(backend: str, launcher: dict[str, Any], epochs: int) -> dict[str, Any]:
    """Return the config of a trial with two slots."""
    changes = {
        "searcher.max_length": {"epochs": epochs},
        "launcher": launcher,
        "resources.slots_per_trial": 2,
        "distributed.backend": backend,
    }
    return load_config(DIGITS / "const.yaml", [f"{key}={json.dumps(value)}" for key, value in changes.items()]).dump()


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "library", "install"), BACKENDS)
@pytest.mark.usefixtures("cluster")
def test_two_nodes_train_what_one_node_trains(store: TrackingStore, backend: str, library: str, install: str) -> None:
    require_module(library, install)
    metrics = []
    for slots, nodes in ((1, "n1, n2"), (2, "n1")):
        config = digits_config(backend, {"type": "slurm", "slots_per_node": slots}, epochs=1)
        (trial,) = run_experiment(store, config, DIGITS)
        assert any(f"running on {nodes} (Slurm job" in line.log for line in store.logs(trial.id))
        (report,) = store.metrics(trial.id, group="validation")
        metrics.append(dict(report.metrics))
    assert metrics[0] == pytest.approx(metrics[1], rel=1e-4)


@pytest.mark.slow
def test_scancel_of_torchrun_saves_a_checkpoint(store: TrackingStore, cluster: Cluster) -> None:
    """torchrun gets the signal, too, and must outlive its workers."""
    require_module(*BACKENDS[0][1:])
    config = digits_config("torch_distributed", {"type": "slurm", "slots_per_node": 1}, epochs=10000)
    experiment = submit_experiment(store, parse_config(config), DIGITS)
    canceled = False

    def cancel() -> None:
        nonlocal canceled
        if not canceled and any(trial.steps_completed for trial in store.trials(experiment.id)):
            canceled = True
            cluster.run("scancel", *cluster.run("squeue", "-h", "-o", "%i").split())

    assert ExperimentRunner(store, experiment.id).run(cancel) is State.PAUSED
    (trial,) = store.trials(experiment.id)
    log = "\n".join(line.log for line in store.logs(trial.id))
    assert "exited with code 0 (canceled: Slurm job" in log
    assert store.checkpoints(trial_id=trial.id), log


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_a_search_runs_trials_at_once(store: TrackingStore, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(SEARCH)
    searcher = {
        "name": "async_halving",
        "metric": "loss",
        "max_trials": 8,
        "max_concurrent_trials": 4,
        "num_rungs": 2,
        "max_length": {"batches": 8},
    }
    config = {
        "entrypoint": "python3 main.py",
        "hyperparameters": {"x": {"type": "double", "minval": 1, "maxval": 2}},
        "searcher": searcher,
        "launcher": {"type": "slurm"},
        "reproducibility": {"experiment_seed": 1},
    }
    experiment = submit_experiment(store, parse_config(config), tmp_path)
    most = 0

    def count() -> None:
        nonlocal most
        most = max(most, sum("running" in trial.placement for trial in store.trials(experiment.id)))

    assert ExperimentRunner(store, experiment.id).run(count) is State.COMPLETED
    trials = store.trials(experiment.id)
    assert (len(trials), {trial.state for trial in trials}) == (8, {State.COMPLETED})
    assert {trial.restarts + trial.interruptions for trial in trials} == {0}
    assert 2 <= most <= 4


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_slots_are_the_gpus_that_slurm_gives(store: TrackingStore, tmp_path: Path) -> None:
    """The GPUs of the test's nodes are pretended, but Slurm numbers them as real ones."""
    (tmp_path / "main.py").write_text(
        "import os; print('GPUs', repr(os.environ['CUDA_VISIBLE_DEVICES']), flush=True)\n"
    )
    for launcher, gpus in (
        ({"gres": "gpu", "slots_per_node": 2}, "GPUs '0,1'"),
        ({"options": ["--gpus=1"]}, "GPUs '0'"),
        ({}, "GPUs ''"),
    ):
        config = {
            "entrypoint": "python3 main.py",
            "resources": {"slots_per_trial": 2 if "gres" in launcher else 1},
            "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
            "launcher": {"type": "slurm", **launcher},
        }
        experiment = submit_experiment(store, parse_config(config), tmp_path)
        ExperimentRunner(store, experiment.id).run()
        (trial,) = store.trials(experiment.id)
        assert gpus in [line.log for line in store.logs(trial.id)]
