"""Each failure ends as documented, the trial continues to the undisturbed result, and nothing is left running."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from cluster import Cluster
from training import Experiment

from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

ANCESTORS = {
    "worker": (lambda line: "main.py" in line, 0),
    "shell": (lambda line: "/bin/sh" in line, 0),
    "inner reaper": (lambda line: "_reaper.py" in line, 0),
    "outer reaper": (lambda line: "_reaper.py" in line, 1),
    "agent": (lambda line: "agent_program" in line, 0),
}
"""Test of the command line of an ancestor of a worker, and how many such ancestors are below it."""


@pytest.fixture
def store() -> Iterator[TrackingStore]:
    with open_store() as store:
        yield store


@pytest.fixture(autouse=True)
def _nothing_is_left(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.wait_idle()


@pytest.fixture
def experiment(store: TrackingStore, tmp_path: Path, cluster: Cluster) -> Experiment:
    return Experiment(store, tmp_path, {"partition": "one"}, max_restarts=1)


def job_of(cluster: Cluster) -> str:
    (job,) = cluster.run("squeue", "--noheader", "--format=%i", "--states=RUNNING").split()
    return job


def ancestor(worker: psutil.Process, role: str) -> psutil.Process:
    is_it, index = ANCESTORS[role]
    lines = [(one, " ".join(one.cmdline()).partition("\0")[0]) for one in (worker, *worker.parents())]
    roles = [one for one, line in lines if is_it(line) and ("_reaper.py" in line) == ("reaper" in role)]
    return roles[index]


def sruns() -> list[psutil.Process]:
    return [one for one in psutil.Process().children() if one.name() == "srun"]


def test_nothing_happens(experiment: Experiment) -> None:
    experiment.release.touch()
    assert experiment.run() is State.COMPLETED, experiment.describe()
    experiment.require_undisturbed_result()


@pytest.mark.parametrize(
    ("role", "restarts"), [("worker", 1), ("shell", 1), ("inner reaper", 1), ("outer reaper", 1), ("agent", 0)]
)
def test_a_process_of_the_node_is_killed(experiment: Experiment, role: str, restarts: int) -> None:
    def kill() -> None:
        worker = experiment.wait_for_worker()
        ancestor(worker, role).kill()
        experiment.wait_for(lambda: not worker.is_running() or worker.status() == "zombie", "end of the worker")

    experiment.run(kill)
    experiment.require_undisturbed_result()
    trial = experiment.trial
    assert (trial.run_id, trial.restarts, trial.interruptions) == (2, restarts, 1 - restarts), experiment.describe()


def test_srun_is_killed(experiment: Experiment) -> None:
    def kill() -> None:
        experiment.wait_for_worker()
        (srun,) = sruns()
        srun.kill()

    experiment.run(kill)
    experiment.require_undisturbed_result()
    assert (experiment.trial.restarts, experiment.trial.interruptions) == (0, 1), experiment.describe()


def test_the_daemon_of_the_node_is_killed_and_comes_back(experiment: Experiment, cluster: Cluster) -> None:
    def kill() -> None:
        experiment.wait_for_worker()
        cluster.kill("n1")
        cluster.start_node("n1")
        experiment.release.touch()

    experiment.run(kill)
    experiment.require_undisturbed_result()
    assert (experiment.trial.restarts, experiment.trial.interruptions) == (0, 0), experiment.describe()


def test_scancel_pauses_the_trial(experiment: Experiment, cluster: Cluster) -> None:
    def cancel() -> None:
        experiment.wait_for_worker()
        cluster.run("scancel", job_of(cluster))

    assert experiment.run(cancel) is State.PAUSED, experiment.describe()
    assert "canceled: Slurm job" in experiment.store.experiment(experiment.id).error, experiment.describe()
    experiment.run()
    experiment.require_undisturbed_result()
    assert "run 2 of trial 1 starts from checkpoint" in (text := experiment.describe()) and "after 5 batches" in text


def test_jobs_of_trials_are_not_requeued_by_slurm(experiment: Experiment, cluster: Cluster) -> None:
    def requeue() -> None:
        experiment.wait_for_worker()
        with pytest.raises(AssertionError, match="disabled|batch"):
            cluster.run("scontrol", "requeue", job_of(cluster))
        experiment.release.touch()

    experiment.run(requeue)
    experiment.require_undisturbed_result()
    assert experiment.trial.run_id == 1, experiment.describe()


def test_a_more_urgent_job_preempts_the_trial(store: TrackingStore, tmp_path: Path, cluster: Cluster) -> None:
    experiment = Experiment(store, tmp_path, {"partition": "low"})

    def preempt() -> None:
        experiment.wait_for_worker()
        cluster.run("srun", "--partition=main", "--nodes=2", "--exclusive", "true")

    experiment.run(preempt)
    experiment.require_undisturbed_result()
    assert any("(preempted: " in line for line in experiment.lines()), experiment.describe()
    assert (experiment.trial.restarts, experiment.trial.interruptions) == (0, 1), experiment.describe()


def test_a_node_is_set_down(experiment: Experiment, cluster: Cluster) -> None:
    def fail() -> None:
        worker = experiment.wait_for_worker()
        cluster.run("scontrol", "update", "nodename=n1", "state=down", "reason=test")
        experiment.wait_for(lambda: not worker.is_running(), "end of the worker")

    experiment.run(fail)  # the node returns to service when its daemon reports
    experiment.require_undisturbed_result()
    assert any("(node lost: " in line for line in experiment.lines()), experiment.describe()
    assert (experiment.trial.restarts, experiment.trial.interruptions) == (0, 1), experiment.describe()


def test_a_trial_waits_for_a_drained_node(experiment: Experiment, cluster: Cluster) -> None:
    cluster.run("scontrol", "update", "nodename=n1", "state=drain", "reason=test")
    experiment.release.touch()

    def resume() -> None:
        try:
            assert "queued" in experiment.wait_for_placement("UnavailableNodes|DRAINED")
        finally:
            cluster.run("scontrol", "update", "nodename=n1", "state=resume")

    experiment.run(resume)
    experiment.require_undisturbed_result()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"partition": "nope"}, "Invalid partition name specified; choose another launcher.partition"),
        ({"gres": "fpga"}, "Invalid generic resource (gres) specification; choose another launcher.gres"),
        ({"constraint": "nope"}, "Invalid feature specification; choose another launcher.constraint"),
        ({"options": ["--nope"]}, "unrecognized option '--nope'; correct launcher.options"),
    ],
)
def test_a_refused_job_pauses_the_experiment(
    store: TrackingStore, tmp_path: Path, cluster: Cluster, options: dict[str, object], problem: str
) -> None:
    experiment = Experiment(store, tmp_path, options)
    assert experiment.run() is State.PAUSED, experiment.describe()
    assert problem in (store.experiment(experiment.id).error or ""), experiment.describe()


def test_a_node_without_the_directory_of_the_checkpoints(
    store: TrackingStore, tmp_path: Path, cluster: Cluster
) -> None:
    storage = {"type": "directory", "container_path": str(cluster.directory / "private")}
    experiment = Experiment(store, tmp_path, checkpoint_storage=storage)
    assert experiment.run() is State.PAUSED, experiment.describe()
    error = store.experiment(experiment.id).error or ""
    assert "does not see the directory of checkpoint_storage; use a bucket" in error, experiment.describe()
    assert list((cluster.directory / "private").iterdir()) == [cluster.directory / "private" / "of-the-login-node"]
