"""Tests of the thread that keeps submitted experiments running."""

from __future__ import annotations

import itertools
import logging
import os
import signal
from pathlib import Path

import pytest
from det_server._runner_keeper import RunnerKeeper

from det_core import runner
from det_core.config import parse_config
from det_core.errors import DetError, LaunchError
from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore

from .serving import running_server, wait_for
from .submitting import ended, submission

WAITING = "import pathlib, time\npathlib.Path({!r}).touch()\nwhile not pathlib.Path({!r}).exists(): time.sleep(0.05)\n"


def _submit(store: TrackingStore, directory: Path, code: str) -> int:
    config = submission(directory, code)["config"]
    return runner.submit_experiment(store, parse_config(config), directory).id


@pytest.mark.integration
def test_what_was_noted_is_started_and_forgotten_at_its_end(
    store: TrackingStore, tmp_path: Path, det_home: Path
) -> None:
    noted, other = (_submit(store, tmp_path / name, "pass") for name in ("a", "b"))
    keeper = RunnerKeeper(store)
    keeper.keep(noted)
    (note,) = (det_home / "server").iterdir()
    assert note.stat().st_mode & 0o777 == 0o600
    keeper.check()
    assert ended(store, noted)
    assert store.experiment(other).state is State.QUEUED
    keeper.check()
    assert not note.exists()


def test_what_is_paused_is_not_started_and_what_was_deleted_is_forgotten(
    store: TrackingStore, det_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []
    monkeypatch.setattr(runner, "start_detached", lambda store, identity, **_: started.append(identity))
    keeper = RunnerKeeper(store)
    paused, held, active, gone = (store.create_experiment(config={"name": "x"}).id for _ in range(4))
    store.set_experiment_state(paused, State.PAUSED)
    store.acquire_lease(held, "elsewhere:1:1:x", seconds=60, state=State.ACTIVE)
    store.set_experiment_state(active, State.ACTIVE)
    for identity in (paused, held, active, gone):
        keeper.keep(identity)
    store.delete_experiment(gone)
    (det_home / "server" / f"experiment-{active}-of-another").touch()
    keeper.check()
    assert started == [active]
    assert len(list((det_home / "server").iterdir())) == 4
    keeper.check()
    assert started == [active], "one that ends at once is not started again at once"


def test_a_runner_that_fails_is_tried_less_and_less_often(
    store: TrackingStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now, tried = [0.0], []

    def fail(store: TrackingStore, identity: int, **_: object) -> None:
        tried.append(now[0])
        raise LaunchError("no room")

    monkeypatch.setattr(runner, "start_detached", fail)
    monkeypatch.setattr("det_server._runner_keeper.monotonic", lambda: now[0])
    keeper = RunnerKeeper(store)
    keeper.keep(store.create_experiment(config={"name": "x"}).id)
    with caplog.at_level(logging.WARNING):
        for _ in range(200):
            keeper.check()
            now[0] += 30
    gaps = [after - before for before, after in itertools.pairwise(tried)]
    assert gaps[:3] == [30, 60, 120] and gaps[-1] == 30 * 60
    assert "no room" in caplog.text


def test_an_experiment_whose_check_fails_keeps_no_other_from_its_runner(
    store: TrackingStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    started: list[int] = []

    def start(store: TrackingStore, identity: int, **_: object) -> None:
        if identity == broken:
            raise KeyError("a defect")
        started.append(identity)

    monkeypatch.setattr(runner, "start_detached", start)
    broken, other = (store.create_experiment(config={"name": "x"}).id for _ in range(2))
    keeper = RunnerKeeper(store)
    for identity in (broken, other):
        keeper.keep(identity)
    keeper.check()
    assert started == [other]
    assert f"the check of experiment {broken} failed" in caplog.text and "a defect" in caplog.text


def test_an_experiment_that_no_runner_can_run_is_not_noted(store: TrackingStore, det_home: Path) -> None:
    script = store.create_experiment(config={"name": "x"}, unmanaged=True).id
    with pytest.raises(DetError, match="script"):
        RunnerKeeper(store).start_runner(script)
    assert not list((det_home / "server").glob("*"))


def test_a_check_that_fails_is_logged_and_repeated(
    store: TrackingStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    checks: list[RunnerKeeper] = []

    def check(keeper: RunnerKeeper) -> None:
        checks.append(keeper)
        raise KeyError("a defect")

    monkeypatch.setattr(RunnerKeeper, "check", check)
    keeper = RunnerKeeper(store, every=0.01)
    keeper.start()
    wait_for(lambda: len(checks) > 1)
    keeper.stop()
    assert "the check of running experiments failed" in caplog.text and "a defect" in caplog.text


@pytest.mark.integration
def test_a_killed_server_resumes_its_experiments(store: TrackingStore, tmp_path: Path) -> None:
    begun, go = tmp_path / "begun", tmp_path / "go"
    code = WAITING.format(str(begun), str(go))
    with running_server() as server:
        commands = server.client.with_headers(Authorization=f"Bearer {server.token}")
        answer = commands.call("/api/experiments", submission(tmp_path / "code", code))
        assert answer.status == 200, answer.text
        experiment_id = answer.json["id"]
        wait_for(begun.exists)
        holder = store.lease_holder(experiment_id)
        assert holder
        server.process.kill()
        server.process.wait(60)
    begun.unlink()
    os.kill(int(holder.rsplit(":", 3)[1]), signal.SIGKILL)  # such as by a restart of the machine
    store.release_lease(experiment_id, holder)  # instead of waiting until it expires
    with running_server():
        wait_for(begun.exists)
        go.touch()
        ended(store, experiment_id)
