"""Tests that launches stop when they are asked to, and that no process is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from det_core.config import parse_config
from det_core.errors import LaunchError
from det_core.interfaces.launcher import Cause, Launcher, Phase
from det_core.launch.launchers import open_launcher
from det_testing.launcher._holder import request_fields
from det_testing.launcher.launcher_suite import INFO, IsRunning, Launch, LauncherSuite
from det_testing.launcher.watched_launch import PRELUDE, REPORT, WatchedLaunch, run_within

PROMISED = 10.0
"""Seconds within which processes end when the holder of their launch is gone."""
_SLACK = 5.0
"""Seconds that a busy machine may take beyond a time limit."""
_KILL_SECONDS = 25.0
"""Seconds that `Allocation.kill` may take, including processes that cannot be ended at once."""

LISTEN = """
import socket
def channel():
    one = socket.socket(socket.AF_UNIX)
    one.connect(os.environ["DET_AGENT_SOCKET"])
    return one.makefile()
"""
STRAYS = """
import signal
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
def start_stray(own_session):
    source, target = os.pipe()
    if not os.fork():
        os.dup2(target, 1)
        if own_session:
            os.setsid()
        if not os.fork():
            print(os.getpid(), flush=True)
            time.sleep(100)
        os._exit(0)
    os.wait()
    return int(os.read(source, 20))
report([os.getpid(), start_stray(False), start_stray(True)])
"""
"""Script that starts processes whose parents end, one of them in a session of its own."""
_STEPS = 40
_TRAINS = f"""
from det_core.tracking import open_store
report(os.getpid())
for step in range({_STEPS}):
    print("step", step, flush=True)
    time.sleep(0.1)
print(open_store("agent:").cluster_id, flush=True)
sys.exit(5)
"""


class LaunchStopTests(LauncherSuite):
    """Tests of preemption, kills, orphans, and the loss of the runner."""

    def test_preemption_reaches_the_workers(self, launch: Launch) -> None:
        """Workers connect to the agent's socket, and then finish the batch and save a checkpoint."""
        one = launch(f"{LISTEN}lines = channel()\nreport('ready')\nreport(lines.readline())", slots=self.slots)
        one.report()
        one.allocation.preempt()
        one.allocation.preempt()
        one.require_code()
        assert set(one.reports()) == {"ready", "preempt\n"}

    def test_preemption_reaches_workers_that_connect_later(self, launch: Launch) -> None:
        """Workers need seconds to start. A request in this time must not be lost."""
        script = "report('starting')\nwait = time.sleep(0.5)\nreport(channel().readline())"
        one = launch(f"{LISTEN}{script}")
        one.report()
        one.allocation.preempt()
        one.require_code()
        assert one.report(1) == "preempt\n"

    def test_a_kill_ends_all_processes(self, launch: Launch, is_running: IsRunning) -> None:
        """Processes may ignore signals, have lost their parents, and be in sessions of their own."""
        one = launch(f"{STRAYS}time.sleep(100)", slots=self.slots)
        pids = one.report()
        assert all(map(is_running, pids))
        run_within(_KILL_SECONDS, one.allocation.kill)
        assert [pid for pid in pids if is_running(pid)] == []
        assert one.ended().code != 0

    def test_no_process_outlives_the_command(self, launch: Launch, is_running: IsRunning) -> None:
        """Data workers and servers of a failed run would hold the memory of the GPU."""
        one = launch(f"{STRAYS}sys.exit(3)")
        one.require_code(3)
        assert [pid for pid in one.report() if is_running(pid)] == []

    def test_no_call_waits_for_processes_that_hang(self, launch: Launch, is_running: IsRunning) -> None:
        """The runner's threads would hang with them, and nobody could stop the experiment."""
        stopped = "pid = os.fork()\nif not pid: time.sleep(100)\nreport([os.getpid(), pid])\nos.kill(os.getpid(), 19)"
        one = launch(f"{STRAYS}{stopped}")
        pids = [*one.report(0), *one.report(1)]
        run_within(_SLACK, one.allocation.preempt)
        run_within(_SLACK, lambda: one.allocation.wait(0))
        assert run_within(_SLACK + 0.5, lambda: one.allocation.wait(0.5)) >= 0.4
        run_within(_KILL_SECONDS, one.allocation.kill)
        one.ended()
        assert [pid for pid in pids if is_running(pid)] == []
        assert one.slowest < _SLACK, f"status() or wait() took {one.slowest:.1f} s too long"

    def test_a_launch_waits_for_the_end_of_the_previous(self, launch: Launch, is_running: IsRunning) -> None:
        """Two runs of one trial would write the same checkpoints. A second launch waits, or ends the first."""
        first = launch(f"{STRAYS}time.sleep(100)")
        pids = first.report()
        second = launch("report('second')")
        time.sleep(0.5)
        if not second.lines:
            run_within(_KILL_SECONDS, first.allocation.kill)
        second.report()
        assert [pid for pid in pids if is_running(pid)] == []
        second.require_code()
        first.ended()

    @pytest.fixture(scope="class")
    @classmethod
    def lost_holder(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
        """Kill a process that holds a launch, and start another launch of the same trial at once."""
        with ExitStack() as ending:
            directory = tmp_path_factory.mktemp("holder")
            first = _Holder(cls, directory, f"{STRAYS}time.sleep(100)", ending)
            pids = first.report()
            first.process.kill()
            first.process.wait()
            second = _Holder(cls, directory, "report(time.time())", ending)
            yield {"pids": pids, "killed": time.monotonic(), "second": second}

    def test_processes_end_when_their_holder_is_killed(
        self, lost_holder: dict[str, Any], is_running: IsRunning
    ) -> None:
        """10 s after the runner, or after the time for which they outlive it, no process is left."""
        while any(map(is_running, lost_holder["pids"])):
            promised = PROMISED + self.outlives_connection
            assert time.monotonic() < lost_holder["killed"] + promised + _SLACK, "processes outlived their holder"
            time.sleep(0.1)

    def test_a_resumed_trial_waits_for_orphans(self, lost_holder: dict[str, Any], is_running: IsRunning) -> None:
        """The next runner starts while processes of the killed one still finish their batch."""
        lost_holder["second"].report()
        assert [pid for pid in lost_holder["pids"] if is_running(pid)] == []
        assert lost_holder["second"].process.wait(self.limit) == 0

    def test_processes_outlive_a_lost_connection(self, launch: Launch, lose_connection: Callable[[], None]) -> None:
        """A network that fails for a moment ends no trial. Lines arrive once, and calls are answered later."""
        if not self.outlives_connection:
            pytest.skip("processes end when the connection is lost")
        one = launch(_TRAINS, call=_answer)
        for step in (3, 6):
            one.wait_until(lambda step=step: f"step {step}" in one.output(), f"step {step}")  # type: ignore[misc]
            lose_connection()
        one.require_code(5)
        assert one.output()[1:] == [*(f"step {step}" for step in range(_STEPS)), "known"]

    def test_the_launch_of_a_killed_runner_is_adopted(self, tmp_path: Path) -> None:
        """The same workers train on. Their lines and calls reach the next runner."""
        with self._killed_holder(tmp_path) as (adopt, pid):
            one = adopt()
            one.require_code(5)
            expected = [*(f"step {step}" for step in range(_STEPS)), "known"]
            output = [line for line in one.output() if not line.startswith(REPORT)]
            assert output == expected[-len(output) :]
            assert {line for line in one.output() if line.startswith(REPORT)} <= {f"{REPORT}{pid}"}

    def test_another_run_is_not_adopted(self, tmp_path: Path) -> None:
        """The workers of an earlier run, or with other code or another config, would train what nobody wants."""
        with self._killed_holder(tmp_path) as (adopt, _):
            trial = {**INFO["trial.json"], "trial_run_id": 2}
            try:
                end = adopt(info={**INFO, "trial.json": trial}).ended()
            except LaunchError:
                return
            assert end.cause is Cause.NOT_STARTED, end

    def test_a_launch_that_was_handed_over_is_adopted(self) -> None:
        """A runner that has lost its experiment leaves its workers to the next one, and so does its launcher."""
        with self._held_launch() as (held, launcher, adopt):
            held.hand_over()
            launcher.close()
            self._require_same_workers(adopt(), held.report())

    def test_a_replaced_runner_ends_nothing(self) -> None:
        """A runner that was frozen may wake up and end its workers when another one has adopted them."""
        with self._held_launch() as (held, launcher, adopt):
            one = adopt()
            one.wait_until(lambda: one.statuses[-1:] and one.statuses[-1].phase is Phase.RUNNING, "adoption")
            run_within(_SLACK, held.allocation.preempt)
            run_within(_KILL_SECONDS, held.allocation.kill)
            held.ended()
            launcher.close()
            self._require_same_workers(one, held.report())

    def _require_same_workers(self, adopted: WatchedLaunch, pid: Any) -> None:
        """Fail unless the workers of a launch that was adopted end by themselves, and are those with this id."""
        adopted.require_code(5)
        assert set(adopted.reports()) <= {pid}

    @contextmanager
    def _held_launch(self) -> Iterator[tuple[WatchedLaunch, Launcher, Callable[[], WatchedLaunch]]]:
        """Start a launch. Yield it with its launcher, and a function with which another runner adopts it."""
        key = "suite-held-launch"
        request = request_fields(key, PRELUDE + _TRAINS)
        with ExitStack() as ending:
            first, second = (open_launcher(parse_config(self.experiment_config())) for _ in range(2))
            ending.callback(first.close)
            ending.callback(second.close)
            if not first.adopts:
                pytest.skip("launches end with their runner")
            first.open(key)
            held = WatchedLaunch(first, self.limit, call=_answer, **request)
            ending.callback(held.release)
            held.report()

            def adopt() -> WatchedLaunch:
                second.open(key, [f"{key}-trial-1"])
                one = WatchedLaunch(second, self.limit, call=_answer, adopted_as=1.0, **request)
                ending.callback(one.release)
                return one

            yield held, first, adopt

    @contextmanager
    def _killed_holder(self, directory: Path) -> Iterator[tuple[Callable[..., WatchedLaunch], Any]]:
        """Kill the holder of a launch. Yield a function that adopts it, with fields of the request, and a pid of it."""
        key = "suite-adopted"
        with ExitStack() as ending:
            next_runner = open_launcher(parse_config(self.experiment_config()))
            ending.callback(next_runner.close)
            if not next_runner.adopts:
                pytest.skip("launches end with their runner")
            first = _Holder(type(self), directory, _TRAINS, ending, key=key)
            pid = first.report()
            first.process.kill()
            first.process.wait()
            next_runner.open(key, [f"{key}-trial-1"])

            def adopt(**fields: Any) -> WatchedLaunch:
                request = {**request_fields(key, PRELUDE + _TRAINS), **fields}
                one = WatchedLaunch(next_runner, self.limit, call=_answer, adopted_as=1.0, **request)
                ending.callback(one.release)
                return one

            yield adopt, pid

    def test_what_a_frozen_runner_has_left_is_removed(self, tmp_path: Path, is_running: IsRunning) -> None:
        """A runner that was moved to another host cannot end it, and its jobs would hold nodes for ever."""
        if not self.has_engine:
            pytest.skip("the runner itself holds its launches")
        with ExitStack() as ending:
            frozen = _Holder(type(self), tmp_path, f"{STRAYS}time.sleep(100)", ending, key="suite-frozen")
            pids = frozen.report()
            frozen.process.send_signal(signal.SIGSTOP)
            next_runner = open_launcher(parse_config(self.experiment_config()))
            with closing(next_runner):
                next_runner.open("suite-frozen")
                end = time.monotonic() + self.limit / 2  # the agents alone would notice it later
                while any(map(is_running, pids)):
                    assert time.monotonic() < end, "open() has not ended the launch of the frozen runner"
                    time.sleep(0.1)


def _answer(method: str, body: bytes) -> bytes:
    """Answer the only call of `_TRAINS`."""
    assert method == "cluster_id"
    return b'{"returned": "known"}'


class _Holder:
    """Process that holds one launch, and prints its lines."""

    def __init__(
        self, suite: type[LauncherSuite], directory: Path, script: str, ending: ExitStack, *, key: str = "suite-held"
    ) -> None:
        job = {"config": suite.experiment_config(), "script": PRELUDE + script, "key": key}
        self._limit = suite.limit
        self._output = directory / f"output-{len(list(directory.iterdir()))}"
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "DET_HOME": str(directory / "home"),
            "DET_SLOTS_DIR": str(directory / "slots"),
        }
        with self._output.open("wb") as output:
            self.process = ending.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "det_testing.launcher._holder", json.dumps(job)],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )
            )
        ending.callback(self.process.kill)

    def report(self) -> Any:
        """Wait for the first value that the script reports, and return it."""
        end = time.monotonic() + self._limit
        while True:
            for line in self._output.read_text(encoding="utf-8").splitlines(keepends=True):
                if line.startswith(REPORT) and line.endswith("\n"):
                    return json.loads(line.removeprefix(REPORT))
            assert time.monotonic() < end, f"the holder printed {self._output.read_text(encoding='utf-8')[-5000:]!r}"
            time.sleep(0.02)
