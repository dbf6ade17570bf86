"""Runners that are killed, and runners that are jobs themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from cluster import Cluster
from training import SECONDS, Experiment

from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]
PROMISED = 10.0
SLACK = 3.0


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
    return Experiment(store, tmp_path, {"partition": "one"}, max_restarts=0)


def start_runner(experiment: Experiment) -> subprocess.Popen[bytes]:
    code = "import sys; from det_core.runner import ExperimentRunner; from det_core.tracking import open_store; "
    run = "store = open_store(); ExperimentRunner(store, int(sys.argv[1])).run()"
    return subprocess.Popen([sys.executable, "-c", code + run, str(experiment.id)])


def test_a_runner_is_killed(experiment: Experiment, cluster: Cluster) -> None:
    with start_runner(experiment) as runner:
        worker = experiment.wait_for_worker()
        runner.kill()
    killed = time.monotonic()
    experiment.wait_for(lambda: not worker.is_running(), "end of the worker")
    cluster.wait_for(lambda: not cluster.run("squeue", "-h"), "end of the job")
    assert time.monotonic() - killed < PROMISED + SLACK
    assert experiment.run() is State.COMPLETED
    experiment.require_undisturbed_result()
    assert "after 4 batches" in experiment.describe(), "the last checkpoint that the runner has recorded"


def test_a_waiting_job_of_a_killed_runner_is_withdrawn(experiment: Experiment, cluster: Cluster) -> None:
    with subprocess.Popen(["srun", "--partition=one", "--exclusive", "sleep", "100"]) as other:
        cluster.wait_for(lambda: cluster.run("squeue", "-h", "-t", "RUNNING"), "other job")
        with start_runner(experiment) as runner:
            experiment.wait_for_placement(r"queued \(Slurm job")
            runner.kill()
        killed = time.monotonic()
        cluster.wait_for(lambda: not cluster.run("squeue", "-h", "-t", "PENDING"), "end of the job")
        assert time.monotonic() - killed < PROMISED
        other.terminate()


def test_srun_is_killed_while_its_job_waits(experiment: Experiment, cluster: Cluster) -> None:
    experiment.release.touch()
    with subprocess.Popen(["srun", "--partition=one", "--exclusive", "sleep", "100"]) as other:
        cluster.wait_for(lambda: cluster.run("squeue", "-h", "-t", "RUNNING"), "other job")

        def kill() -> None:
            experiment.wait_for_placement(r"queued \(Slurm job")
            first = cluster.run("squeue", "-h", "-t", "PENDING", "-o", "%i").strip()
            pids = subprocess.run(["pgrep", "-f", "srun --job-name=det-"], capture_output=True, text=True).stdout
            for pid in pids.split():
                subprocess.run(["kill", "-KILL", pid], check=True)
            experiment.wait_for(lambda: first not in cluster.run("squeue", "-h", "-o", "%i").split(), "end of the job")
            other.terminate()

        experiment.run(kill)
    experiment.require_undisturbed_result()


@pytest.mark.parametrize("slots", [None, 2], ids=["trials are jobs", "trials are steps"])
def test_a_submitted_runner_survives_its_time_limit(
    store: TrackingStore, tmp_path: Path, cluster: Cluster, slots: int | None
) -> None:
    experiment = Experiment(store, tmp_path, {"partition": "one", "slots_per_node": 2})
    config = tmp_path / "config.json"
    config.write_text(json.dumps(store.experiment(experiment.id).config))
    given = ["--slots", str(slots)] if slots else []
    command = [sys.executable, "-m", "det_core.cli", "slurm", "submit", config, experiment.code, "--json", *given]
    submitted = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS).stdout)
    job, experiment.id = submitted["job"], submitted["experiment_id"]
    experiment.wait_for_worker()
    assert any(("step" in line) is bool(slots) for line in experiment.lines() if "Slurm job" in line)
    cluster.run("scancel", "--batch", "--signal=HUP", job)  # as Slurm does before the time limit
    experiment.wait_for(lambda: "BeginTime" in cluster.run("squeue", "-h", "-j", job, "-o", "%r"), "queued job")
    assert store.experiment(experiment.id).state is State.PAUSED, experiment.describe()

    def starts() -> bool:
        if cluster.run("squeue", "-h", "-j", job, "-o", "%T").strip() == "PENDING":
            with suppress(AssertionError):  # it has just started
                cluster.run("scontrol", "update", f"jobid={job}", "starttime=now")  # Slurm would wait for two minutes
        return store.experiment(experiment.id).state is not State.PAUSED

    experiment.wait_for(starts, "second run of the job")
    experiment.wait_for(lambda: store.experiment(experiment.id).state is State.COMPLETED, "end of the experiment")
    experiment.require_undisturbed_result()
    assert "after 5 batches" in experiment.describe()
    output = Path(submitted["output"]).read_text()
    assert f"job {job} is queued again" in output


def test_a_submitted_runner_that_is_canceled_is_not_queued_again(
    store: TrackingStore, tmp_path: Path, cluster: Cluster
) -> None:
    experiment = Experiment(store, tmp_path, {"partition": "one"})
    config = tmp_path / "config.json"
    config.write_text(json.dumps(store.experiment(experiment.id).config))
    command = [sys.executable, "-m", "det_core.cli", "slurm", "submit", config, experiment.code, "--json"]
    submitted = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS).stdout)
    experiment.id = submitted["experiment_id"]
    experiment.wait_for_worker()
    cluster.run("scancel", submitted["job"])
    cluster.wait_for(lambda: not cluster.run("squeue", "-h"), "empty queue")
    assert store.experiment(experiment.id).state is State.PAUSED, experiment.describe()


def test_a_submitted_runner_uses_the_store_of_a_url(tmp_path: Path, cluster: Cluster) -> None:
    url = f"sqlite:///{tmp_path}/other.db"
    with open_store(url) as store:
        experiment = Experiment(store, tmp_path, {"partition": "one"})
        experiment.release.touch()
        config = tmp_path / "config.json"
        config.write_text(json.dumps(store.experiment(experiment.id).config))
        command = [sys.executable, "-m", "det_core.cli", "slurm", "submit", config, experiment.code, "--url", url]
        subprocess.run([*command, "--option=--output=/dev/null"], check=True, timeout=SECONDS)
        experiment.id += 1
        experiment.wait_for(lambda: store.experiment(experiment.id).state is State.COMPLETED, "end of the experiment")
        experiment.require_undisturbed_result()


def test_a_runner_says_that_its_node_does_not_see_the_store(tmp_path: Path) -> None:
    environment = {**os.environ, "SLURM_JOB_ID": "1", "DET_HOME": str(tmp_path / "another")}
    command = [sys.executable, "-m", "det_slurm._runner_job", "1", "steps", "0123456789abcdef"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert ran.returncode == 1
    assert "experiment 1 is not in the tracking store of this node" in ran.stderr
