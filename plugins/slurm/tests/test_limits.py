"""Time limits, a full queue, and nodes without the home of the login node, in ``make test-more``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster, missing, slurm_cluster
from det_testing import is_soak
from det_testing.disturbed_experiment import DisturbedExperiment
from det_testing.requirements import skip_or_fail_in_ci

from det_core.config import parse_config
from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import ExperimentRunner, submit_experiment
from det_core.tracking import open_store

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(280)]
MEMORY = "SelectTypeParameters=CR_Core_Memory\nDefMemPerCPU=200\n"
MEMORY_LIMITS = {
    "cgroup": f"{MEMORY}TaskPlugin=task/cgroup",
    "polling": f"{MEMORY}JobAcctGatherType=jobacct_gather/linux\nJobAcctGatherFrequency=1\n"
    "JobAcctGatherParams=OverMemoryKill",
}
"""Configurations of clusters that limit the memory of jobs."""
ALLOCATE = """
import time
import det_core as det

with det.core.init():
    kept = []
    for _ in range(1000):
        kept.append(bytearray(1 << 20))
        time.sleep(0.005)
    time.sleep(60)
"""


def test_a_trial_saves_a_checkpoint_before_its_time_limit(
    store: TrackingStore, tmp_path: Path, cluster: Cluster
) -> None:
    launcher = {"type": "slurm", "time": "1", "options": ["--signal=URG@20"]}
    experiment = DisturbedExperiment(store, tmp_path, launcher, max_restarts=0)
    assert experiment.run() is State.COMPLETED, experiment.describe()
    experiment.require_undisturbed_result()
    lines = experiment.lines()
    assert any("exited with code 0 (time limit: the node's agent received SIGURG" in one for one in lines), lines
    assert experiment.trial.interruptions >= 1


@pytest.mark.soak
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


@pytest.mark.soak
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
            experiment = DisturbedExperiment(
                store, tmp_path, {"type": "slurm", "partition": "one"}, checkpoint_storage=storage
            )

            def cancel() -> None:
                experiment.wait_for_worker()
                cluster.run("scancel", cluster.run("squeue", "-h", "-o", "%i").strip())

            assert experiment.run(cancel) is State.PAUSED, experiment.describe()
            experiment.run()
            experiment.require_undisturbed_result()
            assert "after 5 batches" in experiment.describe()
    finally:
        server.stop()


@pytest.fixture
def special_cluster(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Run a cluster with the lines of the parameter in its configuration."""
    if why := missing():
        skip_or_fail_in_ci(why)
    with slurm_cluster(more=request.param) as special:
        special.select(monkeypatch)
        yield special
        special.wait_idle()


@pytest.mark.parametrize("special_cluster", ["MaxJobCount=3\nMinJobAge=2"], indirect=True)
def test_a_full_queue_pauses_the_experiment(store: TrackingStore, tmp_path: Path, special_cluster: Cluster) -> None:
    sbatch = ("sbatch", "--parsable", "--output=/dev/null", "--wrap=sleep 1000")
    jobs = [special_cluster.run(*sbatch).strip() for _ in range(2)]
    experiment = DisturbedExperiment(store, tmp_path, {"type": "slurm"})
    experiment.release.touch()

    def pause() -> None:
        told = "trying again: srun: error: Slurm controller not responding, sleeping and retrying"
        experiment.wait_for(lambda: [line for line in experiment.lines() if told in line], "full queue")
        store.set_experiment_state(experiment.id, State.PAUSED)

    assert experiment.run(pause) is State.PAUSED, experiment.describe()  # otherwise, it is paused after a minute
    special_cluster.run("scancel", *jobs)
    if not is_soak():
        return
    special_cluster.wait_for(lambda: "No jobs" in special_cluster.run("scontrol", "show", "jobs"), "room", 150)
    assert experiment.run() is State.COMPLETED, experiment.describe()
    experiment.require_undisturbed_result()


@pytest.mark.soak
@pytest.mark.parametrize("special_cluster", MEMORY_LIMITS.values(), ids=MEMORY_LIMITS, indirect=True)
@pytest.mark.parametrize("in_job", [False, True], ids=["job", "step"])
def test_a_trial_that_slurm_kills_for_its_memory_is_restarted(
    store: TrackingStore, tmp_path: Path, special_cluster: Cluster, monkeypatch: pytest.MonkeyPatch, in_job: bool
) -> None:
    if in_job:
        special_cluster.run("salloc", "--no-shell", "--job-name=all", "--mem=400", "--nodes=1")
        monkeypatch.setenv("SLURM_JOB_ID", special_cluster.run("squeue", "-h", "-n", "all", "-o", "%i").strip())
    (tmp_path / "main.py").write_text(ALLOCATE)
    config = {
        "entrypoint": "python3 main.py",
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
        "launcher": {"type": "slurm", "options": ["--mem=300"]},
        "checkpoint_storage": {"type": "directory", "container_path": str(tmp_path / "checkpoints")},
        "max_restarts": 1,
    }
    experiment = submit_experiment(store, parse_config(config), tmp_path)
    state = ExperimentRunner(store, experiment.id).run()
    special_cluster.run("scancel", "--quiet", "--name=all")
    (trial,) = store.trials(experiment.id)
    log = "\n".join(line.log for line in store.logs(trial.id))
    assert (state, trial.restarts, trial.interruptions) == (State.ERROR, 2, 0), log
    assert log.count("(out of memory: ") == 2, log
    assert "out of memory" in (store.experiment(experiment.id).error or ""), log
