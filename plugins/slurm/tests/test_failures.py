"""Each failure ends as documented, the trial continues to the undisturbed result, and nothing is left running."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import psutil
import pytest
from cluster import Cluster
from det_slurm._config import SlurmConfig
from det_slurm._launcher import SlurmLauncher
from det_testing.disturbed_experiment import PARTS, DisturbedExperiment, find_ancestor, is_alive

from det_core.interfaces.launcher import Allocation, Cause, Exit, LaunchRequest, Phase
from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.launch.context_archive import EMPTY_CONTEXT
from tests.engine_fixtures import KILLS_BELOW_THE_AGENT

pytestmark = pytest.mark.integration
KILLS = [
    *KILLS_BELOW_THE_AGENT,
    pytest.param(*PARTS["agent"], 0, id="agent"),
    pytest.param("slurmstepd", 0, 0, id="slurmstepd", marks=pytest.mark.soak),
]


@pytest.fixture
def experiment(store: TrackingStore, tmp_path: Path, cluster: Cluster) -> DisturbedExperiment:
    return DisturbedExperiment(store, tmp_path, {"type": "slurm", "partition": "one"}, max_restarts=1)


def job_of(cluster: Cluster) -> str:
    (job,) = cluster.run("squeue", "--noheader", "--format=%i", "--states=RUNNING").split()
    return job


def sruns() -> list[psutil.Process]:
    return [one for one in psutil.Process().children() if one.name() == "srun"]


@pytest.mark.parametrize(("text", "index", "restarts"), KILLS)
def test_a_process_of_the_node_is_killed(experiment: DisturbedExperiment, text: str, index: int, restarts: int) -> None:
    def kill() -> None:
        worker = experiment.wait_for_worker()
        find_ancestor(worker, text, index).kill()
        experiment.wait_for(lambda: not is_alive(worker), "end of the worker")

    experiment.run(kill)
    experiment.require_undisturbed_result(restarts=restarts, interruptions=1 - restarts)


def test_srun_is_killed(experiment: DisturbedExperiment) -> None:
    def kill() -> None:
        experiment.wait_for_worker()
        (srun,) = sruns()
        srun.kill()

    experiment.run(kill)
    experiment.require_undisturbed_result(restarts=0, interruptions=1)


@pytest.mark.soak
def test_the_daemon_of_the_node_is_killed_and_comes_back(experiment: DisturbedExperiment, cluster: Cluster) -> None:
    def kill() -> None:
        experiment.wait_for_worker()
        cluster.kill("n1")
        cluster.start_node("n1")
        experiment.release.touch()

    experiment.run(kill)
    experiment.require_undisturbed_result(restarts=0, interruptions=0)


def test_scancel_pauses_the_trial(experiment: DisturbedExperiment, cluster: Cluster) -> None:
    def cancel() -> None:
        experiment.wait_for_worker()
        cluster.run("scancel", job_of(cluster))

    assert experiment.run(cancel) is State.PAUSED, experiment.describe()
    assert "canceled: Slurm job" in experiment.error, experiment.describe()
    experiment.run()
    experiment.require_undisturbed_result()
    assert "run 2 of trial 1 starts from checkpoint" in (text := experiment.describe()) and "after 5 batches" in text


def start(*argv: str, nodes: int = 1, key: str = "k-trial-1") -> Allocation:
    """Start a launch with a slot on each node, as the runner of the experiment ``k`` does."""
    info = {"cluster.json": {}, "trial.json": {"config": {}}}
    values = {"info": info, "slots": nodes, "log": lambda *_: None, "call": lambda *_: b""}
    launcher = SlurmLauncher(SlurmConfig())
    launcher.open("k")
    return launcher.start(LaunchRequest(key=key, argv=argv, code=EMPTY_CONTEXT, **values))


def test_what_a_frozen_host_has_left_is_canceled(cluster: Cluster) -> None:
    """Its ``srun`` cannot end its job any more, and the runner that continues is on another host."""
    with closing(start("sleep", "1000", key="k-trial-2")) as frozen:
        cluster.wait_for(lambda: frozen.wait(0.1) or frozen.status().phase is Phase.RUNNING, "first launch")
        (srun,) = sruns()
        srun.suspend()
        try:
            with closing(start("true")) as following:
                assert following.wait(60) == Exit(code=0), following.status()
        finally:
            srun.resume()
        end = frozen.wait(60)
        assert end and end.cause is Cause.CANCELED


@pytest.mark.usefixtures("cluster")
def test_a_node_whose_name_does_not_lead_to_it_has_the_address_that_slurm_uses() -> None:
    """The host name of the nodes is localhost here."""
    with closing(start("sh", "-c", '[ "$DET_CHIEF_IP" = 127.0.0.1 ]', nodes=2)) as launch:
        assert launch.wait(60) == Exit(code=0)


@pytest.mark.usefixtures("cluster")
def test_variables_of_srun_do_not_break_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch script with ``--export=NONE`` sets such a variable."""
    for name in ("SLURM_EXPORT_ENV", "SRUN_EXPORT_ENV"):
        monkeypatch.setenv(name, "NONE")
    for name in ("SLURM_STDOUTMODE", "SLURM_STDERRMODE", "SLURM_STDINMODE"):
        monkeypatch.setenv(name, "none")
    for name in ("SLURM_SRUN_MULTI", "SLURM_UNBUFFEREDIO", "SLURM_WAIT", "SLURM_KILL_BAD_EXIT"):
        monkeypatch.setenv(name, "1")
    with closing(start("sh", "-c", 'exit "${SLURM_UNBUFFEREDIO:-7}"')) as launch:
        assert launch.wait(60) == Exit(code=7)


@pytest.mark.slow
def test_jobs_of_trials_are_not_requeued_by_slurm(experiment: DisturbedExperiment, cluster: Cluster) -> None:
    def requeue() -> None:
        experiment.wait_for_worker()
        with pytest.raises(AssertionError, match="disabled|batch"):
            cluster.run("scontrol", "requeue", job_of(cluster))
        experiment.release.touch()

    experiment.run(requeue)
    experiment.require_undisturbed_result(restarts=0, interruptions=0)


def test_a_more_urgent_job_preempts_the_trial(store: TrackingStore, tmp_path: Path, cluster: Cluster) -> None:
    experiment = DisturbedExperiment(store, tmp_path, {"type": "slurm", "partition": "low"})

    def preempt() -> None:
        experiment.wait_for_worker()
        cluster.run("srun", "--partition=main", "--nodes=2", "--exclusive", "true")

    experiment.run(preempt)
    experiment.require_undisturbed_result(restarts=0, interruptions=1)
    assert any("(preempted: " in line for line in experiment.lines()), experiment.describe()


@pytest.mark.slow
def test_a_node_is_lost(experiment: DisturbedExperiment, cluster: Cluster) -> None:
    def fail() -> None:
        experiment.wait_for_worker()
        cluster.run("scontrol", "update", "nodename=n1", "state=down", "reason=test")

    experiment.run(fail)  # the node returns to service when its daemon reports
    experiment.require_undisturbed_result(restarts=0, interruptions=1)
    assert lost_nodes(experiment), experiment.describe()


@pytest.mark.soak
def test_the_daemon_of_the_node_is_killed_and_stays_away(experiment: DisturbedExperiment, cluster: Cluster) -> None:
    def kill() -> None:
        experiment.wait_for_worker()
        cluster.kill("n1")
        try:
            experiment.wait_for(lambda: lost_nodes(experiment), "lost node")
        finally:
            cluster.start_node("n1")

    experiment.run(kill)
    experiment.require_undisturbed_result(restarts=0, interruptions=1)


def lost_nodes(experiment: DisturbedExperiment) -> list[str]:
    return [line for line in experiment.lines() if "(node lost: " in line]


@pytest.mark.slow
def test_a_trial_waits_for_a_drained_node(experiment: DisturbedExperiment, cluster: Cluster) -> None:
    cluster.run("scontrol", "update", "nodename=n1", "state=drain", "reason=test")
    experiment.release.touch()

    def resume() -> None:
        try:
            assert "queued" in experiment.wait_for_placement("UnavailableNodes|DRAINED")
        finally:
            cluster.run("scontrol", "update", "nodename=n1", "state=resume")

    experiment.run(resume)
    experiment.require_undisturbed_result()


@pytest.mark.soak
def test_a_trial_on_a_node_that_is_drained_continues(experiment: DisturbedExperiment, cluster: Cluster) -> None:
    def drain() -> None:
        experiment.wait_for_worker()
        cluster.run("scontrol", "update", "nodename=n1", "state=drain", "reason=test")
        experiment.release.touch()

    try:
        experiment.run(drain)
    finally:
        cluster.run("scontrol", "update", "nodename=n1", "state=resume")
    experiment.require_undisturbed_result(restarts=0, interruptions=0)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"partition": "nope"}, "Invalid partition name specified; choose another launcher.partition"),
        pytest.param(
            {"options": ["--nope"]},
            "unrecognized option '--nope'; correct launcher.options",
            marks=pytest.mark.soak,
        ),
        pytest.param(
            {"gres": "fpga"},
            "Invalid generic resource (gres) specification; choose another launcher.gres",
            marks=pytest.mark.soak,
        ),
        pytest.param(
            {"constraint": "nope"},
            "Invalid feature specification; choose another launcher.constraint",
            marks=pytest.mark.soak,
        ),
    ],
)
def test_a_refused_job_pauses_the_experiment(
    store: TrackingStore, tmp_path: Path, cluster: Cluster, options: dict[str, object], problem: str
) -> None:
    experiment = DisturbedExperiment(store, tmp_path, {"type": "slurm", **options})
    assert experiment.run() is State.PAUSED, experiment.describe()
    assert problem in experiment.error, experiment.describe()


@pytest.mark.soak
def test_a_node_without_the_directory_of_the_checkpoints(
    store: TrackingStore, tmp_path: Path, cluster: Cluster
) -> None:
    private = cluster.directory / "private"
    storage = {"type": "directory", "container_path": str(private)}
    experiment = DisturbedExperiment(store, tmp_path, {"type": "slurm"}, checkpoint_storage=storage)
    assert experiment.run() is State.PAUSED, experiment.describe()
    assert "does not see the directory of checkpoint_storage; use a bucket" in experiment.error, experiment.describe()
    assert list(private.iterdir()) == [private / "of-the-login-node"]
