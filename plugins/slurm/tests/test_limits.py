"""Time limits, a full queue, and nodes without the home of the login node, in ``make test-more``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster, slurm_cluster
from training import Experiment

from det_core.config import parse_config
from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import ExperimentRunner, submit_experiment
from det_core.tracking import open_store

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.campaign, pytest.mark.timeout(280)]


@pytest.fixture
def store() -> Iterator[TrackingStore]:
    with open_store() as store:
        yield store


def test_a_trial_saves_a_checkpoint_before_its_time_limit(
    store: TrackingStore, tmp_path: Path, cluster: Cluster
) -> None:
    experiment = Experiment(store, tmp_path, {"time": "1", "options": ["--signal=URG@20"]}, max_restarts=0)
    assert experiment.run() is State.COMPLETED, experiment.describe()
    experiment.require_undisturbed_result()
    lines = experiment.lines()
    assert any("exited with code 0 (time limit: the node's agent received SIGURG" in one for one in lines), lines
    assert experiment.trial.interruptions >= 1
    cluster.wait_idle()


@pytest.mark.skipif("DET_SOAK" not in os.environ, reason="takes two minutes; make soak runs it")
def test_a_command_that_ignores_the_warning_is_ended_at_the_time_limit(
    store: TrackingStore, tmp_path: Path, cluster: Cluster
) -> None:
    config = {
        "entrypoint": ["sleep", "1000"],
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
        "launcher": {"type": "slurm", "time": "1", "max_interruptions": 0},
    }
    experiment = submit_experiment(store, parse_config(config), tmp_path)
    ExperimentRunner(store, experiment.id).run()
    (trial,) = store.trials(experiment.id)
    log = "\n".join(line.log for line in store.logs(trial.id))
    assert "(time limit: " in log
    assert (trial.state, trial.restarts, trial.interruptions) == (State.ERROR, 0, 1), log
    cluster.wait_idle()


@pytest.mark.usefixtures("cluster")
def test_nodes_need_neither_the_home_nor_the_tracking_store(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints are in a bucket, and the nodes see another directory in place of DET_HOME."""
    pytest.importorskip("det_storage_s3")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        import boto3

        keys = {"access_key": "key", "secret_key": "hunter2"}
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        client = boto3.client(
            "s3", endpoint_url=url, aws_access_key_id="key", aws_secret_access_key="hunter2", region_name="us-east-1"
        )
        client.create_bucket(Bucket="checkpoints")
        home = cluster.directory / "private" / tmp_path.name
        monkeypatch.setenv("DET_HOME", str(home))
        storage = {"type": "s3", "bucket": "checkpoints", "endpoint_url": url, **keys}
        with open_store() as store:
            experiment = Experiment(store, tmp_path, {"partition": "one"}, checkpoint_storage=storage)

            def cancel() -> None:
                experiment.wait_for_worker()
                cluster.run("scancel", cluster.run("squeue", "-h", "-o", "%i").strip())

            assert experiment.run(cancel) is State.PAUSED, experiment.describe()
            experiment.run()
            experiment.require_undisturbed_result()
            assert "after 5 batches" in experiment.describe()
    finally:
        server.stop()
    cluster.wait_idle()


def test_a_full_queue_pauses_the_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("SLURM")]:
        monkeypatch.delenv(name)
    with slurm_cluster(more="MaxJobCount=3\nMinJobAge=2") as small, open_store() as store:
        for name, value in small.variables.items():
            monkeypatch.setenv(name, value)
        jobs = [small.run("sbatch", "--parsable", "--output=/dev/null", "--wrap=sleep 1000").strip() for _ in range(2)]
        experiment = Experiment(store, tmp_path)
        experiment.release.touch()

        def pause() -> None:
            told = "trying again: srun: error: Slurm controller not responding, sleeping and retrying"
            experiment.wait_for(lambda: [line for line in experiment.lines() if told in line], "full queue")
            store.set_experiment_state(experiment.id, State.PAUSED)

        assert experiment.run(pause) is State.PAUSED, experiment.describe()  # otherwise, it is paused after a minute
        small.run("scancel", *jobs)
        if "DET_SOAK" not in os.environ:
            return
        small.wait_for(lambda: "No jobs" in small.run("scontrol", "show", "jobs"), "room in the queue", 150)
        assert experiment.run() is State.COMPLETED, experiment.describe()
        experiment.require_undisturbed_result()
        small.wait_idle()
