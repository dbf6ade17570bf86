"""Every test of the suite for launchers notices a launcher with a defect."""

from __future__ import annotations

import signal
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal

import pytest
from det_cluster.agent_group import AGENT_COMMAND, AgentGroup
from det_testing.launcher import LauncherCompliance, WatchedLaunch

from det_core.interfaces.launcher import Allocation, Exit, Launcher, LaunchRequest
from det_core.interfaces.records import MetricsReport
from det_core.interfaces.tracking import TrackingStore
from det_core.launch import node_agent
from det_core.runner import _experiment_runner
from plugins.testing.tests import broken_launchers
from plugins.testing.tests.broken_launchers import CAUGHT_BY, Sound, launcher_name
from plugins.testing.tests.defects import caught_tests, list_tests, make_defect_tests
from plugins.testing.tests.in_process_launcher import InProcessLauncher
from tests.runner.played_launcher import SUCCESS, PlayedLauncher, run_ids, save_checkpoint

pytestmark = pytest.mark.usefixtures("registered")

PLUGIN = broken_launchers.__name__
UNIT = {
    "test_wrong_options_are_refused_with_the_config",
    "test_options_can_be_stored",
    "test_the_launcher_describes_its_slots",
    "test_no_key_is_ignored",
}


class BrokenLaunchers(LauncherCompliance):
    options: ClassVar = {"slots": 2}
    sends_secrets = False
    code_size = 2 << 20

    @pytest.fixture(autouse=True)
    def _hurry(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Wait less long for the end of output that processes keep open."""
        monkeypatch.setattr(node_agent, "_CLOSE_SECONDS", 1.0)


def describe(launcher: type[Sound]) -> dict[str, Any]:
    """Return the attributes of the suite for a launcher."""
    return {"name": launcher_name(launcher), **launcher.claims}


INTEGRATION = list_tests(LauncherCompliance) - UNIT
globals().update(make_defect_tests(BrokenLaunchers, CAUGHT_BY, describe, integration=INTEGRATION))


class TestInProcess(BrokenLaunchers):
    """A launcher without a defect passes."""

    chosen: ClassVar = [
        "test_processes_run_in_their_unpacked_code",
        "test_lines_have_their_stream_and_order",
        "test_lines_have_their_rank",
        "test_long_lines_arrive_complete",
        "test_overwritten_text_counts_once",
    ]

    @pytest.fixture
    def launcher(self) -> Launcher:
        return InProcessLauncher()


class Reconnecting(Launcher):
    """Launcher without a defect, which connects to its agents again."""

    def device(self) -> Literal["cpu", "cuda"]:
        return "cpu"

    def start(self, request: LaunchRequest) -> Allocation:
        return AgentGroup(request, [AGENT_COMMAND], reconnect_seconds=60.0)


@pytest.mark.integration
class TestReconnecting(BrokenLaunchers):
    chosen: ClassVar = ["test_processes_outlive_a_lost_connection"]
    outlives_connection = 60.0

    @pytest.fixture
    def launcher(self) -> Launcher:
        return Reconnecting()


@pytest.mark.timeout(60)
class TestPlayed(BrokenLaunchers):
    """A launcher without a defect, whose workers are a function, survives a crash and a pause."""

    name = "local"
    chosen: ClassVar = ["test_an_experiment_survives_a_crash_and_a_pause"]

    @pytest.fixture(autouse=True)
    def _launcher(self, store: TrackingStore, monkeypatch: pytest.MonkeyPatch) -> None:
        launcher = PlayedLauncher(*[partial(train, store)] * 3, stops=True)
        monkeypatch.setattr(_experiment_runner, "open_launcher", lambda config: launcher)


def train(store: TrackingStore, request: LaunchRequest) -> Exit | None:
    """Train two batches from the latest checkpoint. The first run crashes, and the second waits for its preemption."""
    ids, latest = run_ids(request), request.info["cluster.json"]["latest_checkpoint"]
    run, begin = ids["run_id"], store.checkpoint(latest).steps_completed if latest else 0
    request.log(0, "stdout", f"run {run} starts at {begin}")
    for step in (begin + 1, begin + 2):
        report = MetricsReport(**ids, group="training", steps_completed=step, metrics={"loss": 1 / step})
        store.report_metrics([report])
        save_checkpoint(store, request, step)
    if run == 2:
        store.acknowledge_preemption(**ids)
    elif run == 3:
        store.report_metrics([replace(report, group="validation")])
    return {1: Exit(code=-signal.SIGKILL), 2: None, 3: SUCCESS}[run]


@pytest.mark.parametrize("end", [None, SUCCESS])
def test_a_launch_is_killed_after_a_test_if_it_still_runs(end: Exit | None) -> None:
    launcher = PlayedLauncher(end)
    launch = WatchedLaunch(launcher, 60.0, key="a", argv=["true"], code=b"", info={}, slots=1)
    if end:
        launch.ended()
    launch.release()
    assert launcher.allocations[0].calls == (["close"] if end else ["kill", "close"])


def test_every_test_of_the_suite_notices_a_defect() -> None:
    assert caught_tests(CAUGHT_BY) == list_tests(LauncherCompliance)
