"""Runners that are killed, and runners that are jobs themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from cluster import Cluster
from det_testing.disturbed_experiment import SECONDS, DisturbedExperiment, is_alive

from det_core.cli import main
from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store

pytestmark = pytest.mark.integration
PROMISED = 10.0
SLACK = 20.0
ONE = {"type": "slurm", "partition": "one"}


@pytest.fixture
def experiment(store: TrackingStore, tmp_path: Path, cluster: Cluster) -> DisturbedExperiment:
    return DisturbedExperiment(store, tmp_path, ONE, max_restarts=0)


@pytest.fixture
def busy_node(cluster: Cluster) -> Iterator[subprocess.Popen[bytes]]:
    """Hold the only node of the partition with another job, and return its process."""
    with subprocess.Popen(["srun", "--partition=one", "--exclusive", "sleep", "100"]) as other:
        cluster.wait_for(lambda: cluster.run("squeue", "-h", "-t", "RUNNING"), "other job")
        yield other
        other.terminate()


def test_a_runner_is_killed(experiment: DisturbedExperiment, cluster: Cluster) -> None:
    with experiment.start_runner() as runner:
        worker = experiment.wait_for_worker()
        runner.kill()
    killed = time.monotonic()
    experiment.wait_for(lambda: not is_alive(worker), "end of the worker")
    assert time.monotonic() - killed < PROMISED + SLACK
    cluster.wait_for(lambda: not cluster.run("squeue", "-h"), "end of the job")
    assert experiment.run() is State.COMPLETED
    experiment.require_undisturbed_result()
    assert "after 4 batches" in experiment.describe(), "the last checkpoint that the runner has recorded"


@pytest.mark.usefixtures("busy_node")
def test_a_waiting_job_of_a_killed_runner_is_withdrawn(experiment: DisturbedExperiment, cluster: Cluster) -> None:
    with experiment.start_runner() as runner:
        experiment.wait_for_placement(r"queued \(Slurm job")
        runner.kill()
    killed = time.monotonic()
    cluster.wait_for(lambda: not cluster.run("squeue", "-h", "-t", "PENDING"), "end of the job")
    assert time.monotonic() - killed < PROMISED + SLACK


@pytest.mark.soak
def test_srun_is_killed_while_its_job_waits(
    experiment: DisturbedExperiment, cluster: Cluster, busy_node: subprocess.Popen[bytes]
) -> None:
    experiment.release.touch()

    def kill() -> None:
        experiment.wait_for_placement(r"queued \(Slurm job")
        first = cluster.run("squeue", "-h", "-t", "PENDING", "-o", "%i").strip()
        for process in psutil.Process().children():
            if "--job-name=det-" in " ".join(process.cmdline()):
                process.kill()
        experiment.wait_for(lambda: first not in cluster.run("squeue", "-h", "-o", "%i").split(), "end of the job")
        busy_node.terminate()

    experiment.run(kill)
    experiment.require_undisturbed_result()


@pytest.mark.soak
@pytest.mark.usefixtures("busy_node")
def test_scancel_of_a_waiting_job_pauses_the_trial(experiment: DisturbedExperiment, cluster: Cluster) -> None:
    def cancel() -> None:
        experiment.wait_for_placement(r"queued \(Slurm job")
        cluster.run("scancel", cluster.run("squeue", "-h", "-t", "PENDING", "-o", "%i").strip())

    assert experiment.run(cancel) is State.PAUSED, experiment.describe()
    assert "canceled: Slurm job" in experiment.error, experiment.describe()


def submit_runner(experiment: DisturbedExperiment, *options: str) -> dict[str, Any]:
    """Submit a job that runs a copy of an experiment, which the object stands for from now on."""
    config = experiment.code.parent / "config.json"
    config.write_text(json.dumps(experiment.store.experiment(experiment.id).config))
    command = [sys.executable, "-m", "det_core.cli", "slurm", "submit", config, experiment.code, "--json", *options]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS)
    submitted: dict[str, Any] = json.loads(ran.stdout)
    experiment.id = submitted["experiment_id"]
    return submitted


def require_second_run(experiment: DisturbedExperiment, cluster: Cluster, job: str) -> None:
    """Let a job that is queued again start, and fail unless it completes the experiment."""
    store = experiment.store
    queued = "PENDING BeginTime"
    experiment.wait_for(lambda: cluster.run("squeue", "-h", "-j", job, "-o", "%T %r").strip() == queued, "queued job")
    assert store.experiment(experiment.id).state is State.PAUSED, experiment.describe()
    # Slurm would wait for two minutes. In the second in which the first run ended, the node would refuse the second.
    cluster.run("scontrol", "update", f"jobid={job}", "starttime=now+2")
    try:
        started = lambda: store.experiment(experiment.id).state is not State.PAUSED  # noqa: E731
        experiment.wait_for(started, "second run of the job")
    except AssertionError as error:
        output = next(Path(os.environ["DET_HOME"], "runners").glob("*.log")).read_text()
        raise AssertionError(f"{error}\n{cluster.run('scontrol', 'show', 'job', job)}\n{output}") from error
    experiment.wait_for(lambda: store.experiment(experiment.id).state is State.COMPLETED, "end of the experiment")
    experiment.require_undisturbed_result()


@pytest.mark.parametrize(
    "slots",
    [
        pytest.param((), marks=pytest.mark.soak, id="trials are jobs"),
        pytest.param(("--slots=2",), id="trials are steps"),
    ],
)
def test_a_submitted_runner_survives_its_time_limit(
    store: TrackingStore, tmp_path: Path, cluster: Cluster, slots: tuple[str, ...]
) -> None:
    experiment = DisturbedExperiment(store, tmp_path, {**ONE, "slots_per_node": 2})
    submitted = submit_runner(experiment, *slots)
    job = submitted["job"]
    experiment.wait_for_worker()
    assert any(("step" in line) is bool(slots) for line in experiment.lines() if "Slurm job" in line)
    cluster.run("scancel", "--batch", "--signal=HUP", job)  # as Slurm does before the time limit
    require_second_run(experiment, cluster, job)
    assert "after 5 batches" in (text := experiment.describe()), text
    assert f"job {job} is queued again" in Path(submitted["output"]).read_text()


@pytest.mark.soak
def test_a_submitted_runner_that_is_requeued_continues(experiment: DisturbedExperiment, cluster: Cluster) -> None:
    job = submit_runner(experiment)["job"]
    experiment.wait_for_worker()
    cluster.run("scontrol", "requeue", job)  # also ends the srun of the trial, which cannot save a checkpoint
    require_second_run(experiment, cluster, job)


@pytest.mark.soak
def test_a_submitted_runner_that_is_canceled_is_not_queued_again(
    experiment: DisturbedExperiment, cluster: Cluster
) -> None:
    job = submit_runner(experiment)["job"]
    experiment.wait_for_worker()
    cluster.run("scancel", job)
    cluster.wait_for(lambda: not cluster.run("squeue", "-h"), "empty queue")
    assert experiment.store.experiment(experiment.id).state is State.PAUSED, experiment.describe()


@pytest.mark.soak
def test_a_submitted_runner_uses_the_store_of_a_url(tmp_path: Path, cluster: Cluster) -> None:
    url = f"sqlite:///{tmp_path}/other.db"
    with open_store(url) as store:
        experiment = DisturbedExperiment(store, tmp_path, ONE)
        experiment.release.touch()
        submit_runner(experiment, "--url", url, "--option=--output=/dev/null")
        experiment.wait_for(lambda: store.experiment(experiment.id).state is State.COMPLETED, "end of the experiment")
        experiment.require_undisturbed_result()


def test_a_runner_says_that_its_node_does_not_see_the_store(tmp_path: Path) -> None:
    environment = {**os.environ, "SLURM_JOB_ID": "1", "DET_HOME": str(tmp_path / "another")}
    command = [sys.executable, "-m", "det_slurm._runner_job", "1", "steps", "0123456789abcdef"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert ran.returncode == 1
    assert "experiment 1 is not in the tracking store of this node" in ran.stderr


@pytest.mark.parametrize(
    ("option", "problem"),
    [("--export=NONE", "--export keeps variables from the runner"), ("job.sh", "expected an option in one word")],
)
def test_options_that_break_the_job_of_the_runner_are_refused(
    capsys: pytest.CaptureFixture[str], option: str, problem: str
) -> None:
    assert main(["slurm", "submit", "const.yaml", f"--option={option}"]) == 1
    assert f"--option: {problem}" in capsys.readouterr().err
