"""Servers that are away, slow or frozen, and runs and experiments that users delete."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from det_mlflow import _observer, _run_recorder
from det_mlflow._client import MLflowError
from det_testing.proxy import Fault, FaultyProxy, ProxiedRequest

from det_core import events
from det_core.errors import StorageError
from det_core.interfaces.records import State

from .observation import Observation
from .server import MLflowServer, running_mlflow

pytestmark = pytest.mark.integration

Observe = Callable[..., Observation]


def address(proxy: FaultyProxy) -> str:
    return f"http://127.0.0.1:{proxy.port}"


def once(part: str, fault: Fault) -> Callable[[ProxiedRequest], Fault | None]:
    """Return a plan for the first request whose target contains a text."""
    faults = iter([fault])
    return lambda request: next(faults, None) if part in request.target else None


def test_what_was_reported_while_the_server_was_away_arrives_afterwards(observe: Observe, proxy: FaultyProxy) -> None:
    worker = observe(address=address(proxy))
    proxy.plan = lambda request: Fault.RESET
    worker.start()
    for step in (1, 2):
        worker.report(step, loss=step)
        with pytest.raises(MLflowError, match=f"cannot reach MLflow at {address(proxy)}.*tracking_uri"):
            worker.flush()
    assert worker.runs == []
    proxy.plan = lambda request: None
    worker.flush()
    assert worker.run.history("training/loss") == [(1, 1), (2, 2)]
    proxy.plan = once("", Fault.UNAVAILABLE)
    worker.report(3, loss=3)
    worker.observer.close()  # tries several times
    assert worker.run.history("training/loss") == [(1, 1), (2, 2), (3, 3)]


@pytest.mark.parametrize("call", ["experiments/create", "runs/create", "runs/log-batch", "runs/update", "artifacts/"])
def test_a_request_whose_response_was_lost_has_one_effect(observe: Observe, proxy: FaultyProxy, call: str) -> None:
    worker = observe(address=address(proxy), checkpoints="copy")
    proxy.plan = once(call, Fault.LOSE)
    worker.start()
    worker.report(1, loss=0.5)
    worker.save("one", model=b"abc")
    with pytest.raises(MLflowError):
        worker.flush()
    worker.flush()
    run = worker.run
    assert len(worker.runs) == 1
    assert (run.status, run.history("training/loss")) == ("RUNNING", [(1, 0.5)])
    assert run.files("checkpoints") == ["checkpoints/one/model"]


def test_a_run_that_a_lost_request_creates_late_is_deleted(observe: Observe, server: MLflowServer) -> None:
    first, second = observe(), observe()
    first.start()
    first.report(1, loss=0.5)
    first.flush()
    used = first.run
    late = {"experiment_id": used.info["experiment_id"], "start_time": 1, "run_name": "trial 3"}
    server.call("runs/create", {**late, "tags": [{"key": "det.key", "value": used.tags["det.key"]}]})
    assert len(first.runs) == 2
    second.start()
    second.flush()
    assert second.run.id == used.id


def test_a_frozen_server_costs_one_time_limit_and_then_nothing_for_a_while(
    observe: Observe, server: MLflowServer
) -> None:
    worker = observe()
    worker.start()
    worker.flush()
    usual, worker.observer._client.timeout = worker.observer._client.timeout, 0.5
    with server.frozen():
        worker.report(1, loss=1)
        with pytest.raises(MLflowError, match="timed out"):
            worker.flush()
        began = time.monotonic()
        for step in range(2, 100):
            worker.report(step, loss=step)
            worker.observer.flush()
        assert time.monotonic() - began < 10, "each flush would take half a second"
    worker.observer._client.timeout = usual
    worker.flush()
    assert [step for step, _ in worker.run.history("training/loss")] == list(range(1, 100))


def test_the_pause_after_errors_grows_and_ends_with_them(
    observe: Observe, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = observe(address=address(proxy))
    now = 1000.0
    monkeypatch.setattr("det_mlflow._observer.time.monotonic", lambda: now)
    requests: list[float] = []

    def record(request: ProxiedRequest) -> Fault | None:
        requests.append(now)
        return Fault.RESET if now < 1100 else None

    proxy.plan = record
    worker.start()
    while now < 1200:
        try:
            worker.observer.flush()
        except MLflowError:
            assert now < 1100
        now += 1
    assert requests[:9] == [1000, 1001, 1003, 1007, 1015, 1031, 1061, 1091, 1121]
    assert worker.run.status == "RUNNING"
    worker.report(1, loss=0.5)
    worker.observer.flush()
    assert requests[-1] == now


def test_the_end_says_how_much_was_not_delivered(
    observe: Observe, proxy: FaultyProxy, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_run_recorder, "CAPACITY", 10)
    monkeypatch.setattr(_observer, "_LAST_ATTEMPTS", 0.1)
    worker = observe(address=address(proxy))
    worker.start()
    worker.flush()
    proxy.plan = lambda request: Fault.RESET
    for step in range(50):
        worker.report(step, loss=step)
    with pytest.raises(MLflowError):
        worker.observer.close()
    assert f"50 items of trial 3 are not in MLflow at {address(proxy)}" in caplog.text
    proxy.plan = lambda request: None
    worker.observer._client.timeout = 10
    worker.flush()
    assert [step for step, _ in worker.run.history("training/loss")] == list(range(40, 50))


def test_a_deleted_run_receives_nothing_until_it_is_restored(
    observe: Observe, server: MLflowServer, caplog: pytest.LogCaptureFixture
) -> None:
    worker = observe()
    worker.start()
    worker.flush()
    run = worker.run
    server.call("runs/delete", {"run_id": run.id})
    for step in (1, 2):
        worker.report(step, loss=0.5)
        worker.flush()
    worker.observer.close()
    notices = [each.getMessage() for each in caplog.records]
    assert len(notices) == 2
    assert f"mlflow runs restore --run-id {run.id}" in notices[0]
    assert "2 items of trial 3 are not in MLflow" in notices[1]
    runner = observe("runner")
    runner.end(State.COMPLETED)
    runner.flush()
    assert [each.name for each in runner.runs] == [runner.name]
    server.call("runs/restore", {"run_id": run.id})
    resumed = observe()
    resumed.start(run_id=2)
    resumed.report(3, loss=0.25)
    resumed.flush()
    assert (resumed.run.id, resumed.run.history("training/loss")) == (run.id, [(3, 0.25)])


def test_the_trials_of_a_deleted_parent_are_still_recorded(observe: Observe, server: MLflowServer) -> None:
    runner, worker = observe("runner"), observe()
    runner.send(events.ExperimentStarted, resumed=False)
    runner.flush()
    server.call("runs/delete", {"run_id": runner.runs[0].id})
    worker.start()
    worker.flush()
    runner.end(State.COMPLETED)
    runner.send(events.ExperimentFinished, state=State.COMPLETED)
    runner.flush()
    assert [run.status for run in runner.runs] == ["FINISHED"]


def test_the_error_of_a_deleted_mlflow_experiment_says_how_to_restore_it(
    observe: Observe, server: MLflowServer
) -> None:
    worker = observe()
    worker.start()
    worker.flush()
    experiment = worker.run.info["experiment_id"]
    server.call("experiments/delete", {"experiment_id": experiment})
    other = observe()
    other.start()
    with pytest.raises(MLflowError, match=f"deleted.*restore --experiment-id {experiment}.*experiment_name"):
        other.flush()
    server.call("experiments/restore", {"experiment_id": experiment})
    other.flush()
    assert other.run.id == worker.run.id


def test_files_are_not_copied_to_artifacts_that_the_server_does_not_store(
    observe: Observe, server: MLflowServer, caplog: pytest.LogCaptureFixture
) -> None:
    worker = observe(checkpoints="copy")
    server.call("experiments/create", {"name": worker.name, "artifact_location": "s3://bucket/prefix"})
    worker.start()
    worker.save("one", model=b"abc")
    worker.report(1, loss=0.5)
    worker.flush()
    assert "s3://bucket/prefix" in caplog.text
    assert "--serve-artifacts" in caplog.text
    assert worker.run.checkpoints.keys() == {"one"}
    assert worker.run.metrics == {"training/loss": 0.5}


def test_a_server_that_cannot_store_files_receives_everything_else(observe: Observe, proxy: FaultyProxy) -> None:
    runner = observe("runner", address=address(proxy))
    proxy.plan = lambda request: Fault.ERROR if "mlflow-artifacts" in request.target else None
    runner.send(events.ExperimentStarted, resumed=False)
    runner.end(State.COMPLETED)
    runner.send(events.ExperimentFinished, state=State.COMPLETED)
    with pytest.raises(MLflowError, match="status 500"):
        runner.flush()
    assert [run.status for run in runner.runs] == ["FINISHED", "FINISHED"]
    proxy.plan = lambda request: None
    runner.flush()
    assert [run.files() for run in runner.runs] == [["det/config.json"], []]


def test_a_checkpoint_that_cannot_be_read_is_not_copied(
    observe: Observe, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(storage_id: str, directory: Path, paths: object = None) -> None:
        raise StorageError("the bucket is gone")

    monkeypatch.setattr(Observation, "_fetch", staticmethod(fail))
    worker = observe(checkpoints="copy")
    worker.start()
    worker.save("one", model=b"abc")
    worker.flush()
    with caplog.at_level(logging.WARNING):
        worker.observer.close()
    assert "checkpoint one of trial 3 is not copied to MLflow: the bucket is gone" in caplog.text
    assert "1 items of trial 3" in caplog.text


@pytest.mark.slow
def test_a_server_with_users_needs_the_right_password(tmp_path: Path) -> None:
    with running_mlflow(tmp_path, "correct horse battery") as own:
        right, wrong = (
            Observation(own, "worker", "one", name, 3, {"tracking_uri": own.address, "username": "admin", **password})
            for name, password in (
                ("right", {"password": "correct horse battery"}),
                ("wrong", {"password": "wrong horse battery"}),
            )
        )
        for worker in (right, wrong):
            worker.start()
            worker.report(1, loss=0.5)
        right.flush()
        assert (right.run.status, right.run.history("training/loss")) == ("RUNNING", [(1, 0.5)])
        with pytest.raises(MLflowError, match="refuses access .401") as refused:
            wrong.flush()
        assert "wrong horse" not in str(refused.value)
        assert wrong.runs == []
