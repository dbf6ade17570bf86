"""The launcher in examples/launcher_ssh passes the compliance suite on two real servers, and survives failures."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from det_testing.disturbed_experiment import PARTS, DisturbedExperiment, find_ancestor, is_alive
from det_testing.launcher import LauncherCompliance
from det_testing.launcher.launcher_suite import INFO, pack_code
from det_testing.launcher.watched_launch import PRELUDE, WatchedLaunch
from det_testing.plugin_metadata import write_plugin_metadata
from det_testing.requirements import skip_or_fail_in_ci

from det_core.config import parse_config
from det_core.interfaces.launcher import PYTHON, Cause
from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.launch.launchers import open_launcher
from det_core.tracking import open_store
from tests.sshd import SshHosts, missing, ssh_hosts
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("hosts")]

EXAMPLE = Path(__file__).parents[3] / "examples" / "launcher_ssh"
OPTIONS: dict[str, Any] = {"hosts": {"one": 1, "two": 1}}
PROMISED = 10.0
"""Seconds within which all processes of a trial end when its runner is gone."""
SLACK = 20.0
KILLS = [
    pytest.param(*PARTS["worker"], 1, id="worker", marks=pytest.mark.soak),
    pytest.param(*PARTS["inner guard"], 1, id="inner guard", marks=pytest.mark.soak),
    pytest.param(*PARTS["outer guard"], 1, id="outer guard", marks=pytest.mark.soak),
    pytest.param(*PARTS["agent"], 0, id="agent", marks=pytest.mark.slow),
    pytest.param("sshd: ", 0, 0, id="connection", marks=pytest.mark.slow),
]
"""Parts of the command lines of processes above a worker, the number of such processes that are below, and the number
of restarts that the death counts as. Otherwise, it counts as an interruption."""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    """Install the example, and run its two hosts."""
    if why := missing():
        skip_or_fail_in_ci(why)
    site = tmp_path_factory.mktemp("site")
    write_plugin_metadata(site, "ssh", "det_ssh")
    (site / "det_ssh.py").write_text((EXAMPLE / "det_ssh.py").read_text())
    directory = tmp_path_factory.mktemp("ssh")
    with pytest.MonkeyPatch.context() as patch, ssh_hosts(directory, site, *OPTIONS["hosts"]) as hosts:
        patch.syspath_prepend(str(site))
        patch.setenv("PYTHONPATH", str(site))
        patch.setitem(OPTIONS, "options", [f"-F{hosts.client_config}"])
        patch.setitem(OPTIONS, "python", sys.executable)
        yield hosts


@pytest.fixture
def store() -> Iterator[TrackingStore]:
    with open_store() as store:
        yield store


@pytest.fixture
def experiment(store: TrackingStore, tmp_path: Path) -> DisturbedExperiment:
    return DisturbedExperiment(store, tmp_path, {"type": "ssh", **OPTIONS}, max_restarts=1)


def clients() -> list[psutil.Process]:
    return [one for one in psutil.Process().children(recursive=True) if one.name() == "ssh"]


@pytest.fixture(autouse=True)
def _nothing_is_left(hosts: SshHosts) -> Iterator[None]:
    yield
    wait_for(lambda: not clients() and not any(server.children() for server in hosts.servers.values()))


def start_launch(script: str, **options: Any) -> WatchedLaunch:
    launcher = {"type": "ssh", **OPTIONS, **options}
    searcher = {"name": "single", "metric": "loss", "max_length": {"batches": 1}}
    config = parse_config({"entrypoint": "true", "searcher": searcher, "launcher": launcher})
    code = pack_code({"main.py": (PRELUDE + script).encode()})
    return WatchedLaunch(open_launcher(config), 60, key="ssh", argv=[PYTHON, "main.py"], code=code, info=INFO, slots=1)


class TestSsh(LauncherCompliance):
    name = "ssh"
    options = OPTIONS


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"hosts": {"nobody.invalid": 1}}, "Could not resolve hostname nobody.invalid"),
        ({"options": ["-oUserKnownHostsFile=none"]}, "Host key verification failed."),
        ({"options": ["-oUser=nobody"]}, "nobody@127.0.0.1: Permission denied (publickey)."),
        ({"options": ["-oPort=1"]}, "Connection refused"),
        ({"options": ["-oNope=1"]}, "Bad configuration option: nope"),
        ({"python": "/no/python3"}, "; install det-cluster 0"),
    ],
    ids=["unknown host", "unknown host key", "refused user", "no server", "wrong option", "no interpreter"],
)
def test_a_host_that_starts_no_agent_is_explained(options: dict[str, Any], problem: str) -> None:
    if "options" in options:
        options = {"options": [*OPTIONS["options"], *options["options"]]}
    end = start_launch("", **options).ended()
    assert end.cause is Cause.NOT_STARTED and problem in end.message, end


def test_a_refused_key_is_explained(hosts: SshHosts) -> None:
    keys = hosts.authorized_keys.read_text()
    hosts.authorized_keys.write_text("")
    try:
        end = start_launch("").ended()
    finally:
        hosts.authorized_keys.write_text(keys)
    assert end.cause is Cause.NOT_STARTED and "Permission denied (publickey)." in end.message, end


@pytest.mark.slow
def test_a_launch_with_a_lost_client_ends_after_its_workers() -> None:
    """The next run of the trial may be on the other host, where no lock of the first one is seen."""
    launch = start_launch("report(os.getpid())\ntime.sleep(1000)")
    worker = psutil.Process(launch.report())
    (client,) = clients()
    client.kill()
    assert launch.ended().cause is Cause.NODE_LOST
    assert not is_alive(worker)


@pytest.mark.parametrize(("text", "index", "restarts"), KILLS)
def test_a_process_of_the_host_is_killed(experiment: DisturbedExperiment, text: str, index: int, restarts: int) -> None:
    def kill() -> None:
        worker = experiment.wait_for_worker()
        find_ancestor(worker, text, index).kill()
        experiment.wait_for(lambda: not is_alive(worker), "end of the worker")

    experiment.run(kill)
    experiment.require_undisturbed_result(restarts=restarts, interruptions=1 - restarts)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)])
def test_the_client_is_ended(experiment: DisturbedExperiment, number: int) -> None:
    def end() -> None:
        experiment.wait_for_worker()
        (client,) = clients()
        client.send_signal(number)

    experiment.run(end)
    experiment.require_undisturbed_result(restarts=0, interruptions=1)
    assert any("(node lost: the command 'ssh " in line for line in experiment.lines()), experiment.describe()


@pytest.mark.slow
def test_a_server_that_takes_no_more_connections_ends_no_trial(
    store: TrackingStore, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, hosts: SshHosts
) -> None:
    with ssh_hosts(tmp_path_factory.mktemp("ssh"), hosts.site, "three") as others:
        options = {**OPTIONS, "hosts": {"three": 1}, "options": [f"-F{others.client_config}"]}
        experiment = DisturbedExperiment(store, tmp_path, {"type": "ssh", **options}, max_restarts=0)

        def kill() -> None:
            experiment.wait_for_worker()
            others.kill_server("three")
            experiment.release.touch()

        experiment.run(kill)
        experiment.require_undisturbed_result(restarts=0, interruptions=0)


def test_the_runner_is_killed(experiment: DisturbedExperiment, hosts: SshHosts) -> None:
    with experiment.start_runner() as runner:
        worker = experiment.wait_for_worker()
        runner.kill()
    wait_for(lambda: not is_alive(worker), PROMISED + SLACK)
    wait_for(lambda: not any(server.children() for server in hosts.servers.values()), PROMISED)
    assert experiment.run() is State.COMPLETED, experiment.describe()
    experiment.require_undisturbed_result(restarts=0, interruptions=0)
