"""Tests of jobs that end because a worker fails or somebody stops them."""

from __future__ import annotations

import os
import signal
import time

import psutil
import pytest

from det_testing.backend._backend_suite import BackendSuite, StartScript, reported_values
from det_testing.backend._launched_script import LaunchedScript

_SECONDS = 10.0
"""Maximum time in seconds from the failure of one worker to the end of all."""

_WAITING = """
tell(os.getpid())
if rank == {guilty}:
    time.sleep(1000)
workers.allgather(None)
"""
_ASLEEP = """
stray = __import__("subprocess").Popen(["sleep", "1000"], start_new_session=True)
tell(os.getpid())
workers.allgather(None)
time.sleep(1000)
"""
_IGNORES = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
tell(os.getpid())
workers.allgather(None)
if rank == 0:
    sys.exit(7)
time.sleep(1000)
"""
_EXITS = "workers.allgather(None)\nif rank == {guilty}: sys.exit(7)\n"
_RAISES = """
tell(None)
workers.allgather(None)
if rank == {guilty}:
    raise RuntimeError("a defect in rank {guilty}")
workers.allgather(None)
"""
_GUILTY = pytest.mark.parametrize("guilty", [0, -1], ids=["chief", "last"])


class BackendFailureTests(BackendSuite):
    """Tests that all workers end, that failures are reported, and that no process remains."""

    @_GUILTY
    def test_a_worker_that_exits_with_an_error_fails_the_job(self, start: StartScript, guilty: int) -> None:
        launch = start(_EXITS.format(guilty=guilty % self.slots))
        assert launch.wait() != 0, launch.output()
        launch.assert_nothing_is_left()

    def test_a_worker_that_ignores_sigterm_is_killed(self, start: StartScript) -> None:
        """An example is a worker that saves a checkpoint on SIGTERM and waits for another that has died."""
        launch = start(_IGNORES)
        launch.wait_for(self.slots)
        _assert_failed_in_time(launch, time.monotonic(), 2 * _SECONDS)

    @_GUILTY
    def test_a_worker_that_raises_ends_all_and_says_why(self, start: StartScript, guilty: int) -> None:
        rank = guilty % self.slots
        launch = start(_RAISES.format(guilty=rank))
        launch.wait_for(self.slots)
        _assert_failed_in_time(launch, time.monotonic())
        raised = f"RuntimeError: a defect in rank {rank}"
        assert launch.lines("stderr").count((rank, raised)) == 1, launch.output()

    @_GUILTY
    @pytest.mark.parametrize("script", [_WAITING, _ASLEEP], ids=["waiting", "asleep"])
    def test_a_killed_worker_ends_all(self, start: StartScript, script: str, guilty: int) -> None:
        launch = start(script.format(guilty=guilty % self.slots))
        launch.wait_for(self.slots)
        time.sleep(0.3)
        began = time.monotonic()
        os.kill(reported_values(launch)[guilty], signal.SIGKILL)
        _assert_failed_in_time(launch, began)

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_who_starts_it_can_end_it(self, start: StartScript, number: int) -> None:
        launch = start(_ASLEEP)
        launch.wait_for(self.slots)
        began = time.monotonic()
        launch.process.send_signal(number)
        assert launch.wait(_SECONDS) == 128 + number
        launch.assert_nothing_is_left()
        assert time.monotonic() - began < _SECONDS

    def test_a_killed_launcher_leaves_nothing(self, start: StartScript) -> None:
        """The killed process is the one that the backend's own command line started."""
        launch = start(_ASLEEP)
        launch.wait_for(self.slots)
        began = time.monotonic()
        (guard,) = psutil.Process(launch.process.pid).children()
        (inner_guard,) = guard.children()
        (launcher,) = inner_guard.children()
        launcher.kill()
        _assert_failed_in_time(launch, began)


def _assert_failed_in_time(launch: LaunchedScript, began: float, seconds: float = _SECONDS) -> None:
    code = launch.wait(seconds)
    assert code != 0, launch.output()
    launch.assert_nothing_is_left()
    assert time.monotonic() - began < seconds + 1
