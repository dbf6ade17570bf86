"""Requests for preemption and calls of the tracking store between an agent and its workers."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from det_testing.launcher.watched_launch import refuse_calls

from det_core.config import parse_config
from det_core.core.agent_channel import PREEMPT, SOCKET, AgentChannel
from det_core.errors import RecordNotFound, StaleRun, TrackingError
from det_core.interfaces.launcher import PYTHON, Exit, LaunchRequest
from det_core.interfaces.records import CheckpointState, MetricsReport
from det_core.interfaces.tracking import TrackingStore
from det_core.launch._worker_connections import WorkerConnections
from det_core.launch.context_archive import pack_context_dir
from det_core.launch.node_agent import AllocatedNode, NodeAgent
from det_core.runner._launch_request import build_run_info
from det_core.tracking import AGENT_URL, open_store
from det_core.tracking.remote import (
    Caller,
    RunAccess,
    StoreCall,
    _agent_socket,
    answer_call,
    open_agent_store,
)
from det_core.tracking.remote._remote_store import OwnCalls

from ..waiting import wait_for

Listen = Callable[[StoreCall], WorkerConnections]


@pytest.fixture
def record(tmp_path: Path) -> Iterator[TrackingStore]:
    """Return the tracking store of the runner."""
    with open_store(f"sqlite:///{tmp_path}/det.db") as store:
        yield store


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the path of the agent's socket, which workers find in their environment."""
    with TemporaryDirectory(dir="/tmp") as directory:
        monkeypatch.setenv(SOCKET, f"{directory}/agent.sock")
        yield Path(directory, "agent.sock")


@pytest.fixture
def listen(path: Path) -> Iterator[Listen]:
    """Return a function that starts to listen."""
    opened: list[WorkerConnections] = []

    def start(call: StoreCall) -> WorkerConnections:
        opened.append(WorkerConnections(path, call))
        return opened[-1]

    before = set(threading.enumerate())
    yield start
    for one in opened:
        one.close()
    names = ("det-agent", "det-agent-client")
    wait_for(lambda: {thread for thread in threading.enumerate() if thread.name in names} <= before)


def test_calls_are_executed_and_errors_come_back(listen: Listen, record: TrackingStore) -> None:
    listen(partial(answer_call, record))
    with open_store(AGENT_URL) as store:
        assert store.url == AGENT_URL
        assert store.cluster_id == record.cluster_id
        created = store.create_experiment(config={"name": "é"}, model_definition=os.urandom(3 << 20))
        assert store.experiment(created.id) == created == record.experiment(created.id)
        assert store.model_definition(created.id) == record.model_definition(created.id)
        with pytest.raises(RecordNotFound, match="there is no trial 5"):
            store.trial(5)
        store.close()
        assert store.experiments() == record.experiments()  # opens the connection again


def test_threads_call_at_the_same_time(listen: Listen, record: TrackingStore) -> None:
    """A call that waits for the database holds up no other call."""
    waiting = threading.Barrier(4)

    def call(method: str, body: bytes) -> bytes:
        waiting.wait(60)
        return answer_call(record, method, body)

    listen(call)
    with open_store(AGENT_URL) as store, ThreadPoolExecutor(4) as pool:
        names = list(pool.map(lambda name: store.create_experiment(config={"name": name}).name, "abcdefgh"))
    assert names == list("abcdefgh")


@pytest.mark.parametrize("early", [True, False])
def test_requests_for_preemption_arrive_beside_calls(
    listen: Listen, record: TrackingStore, path: Path, early: bool
) -> None:
    """The agent cannot know yet what a new connection is for when it sends a pending request."""
    requests: list[str] = []
    arrived = threading.Event()

    def request(reason: str) -> None:
        requests.append(reason)
        arrived.set()

    connections = listen(partial(answer_call, record))
    if early:
        connections.preempt()
    channel = AgentChannel(str(path), request)
    with open_store(AGENT_URL) as store:
        assert store.experiments() == []
        if not early:
            connections.preempt()
        assert arrived.wait(60)
        assert store.experiments() == []
    channel.close()
    assert requests == ["runner"]


def test_a_process_without_an_agent_gets_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TrackingError, match=f"the agent of this node.* is gone .{path}: .*No such file"):
        open_store(AGENT_URL).experiments()
    monkeypatch.delenv(SOCKET)
    with pytest.raises(TrackingError, match=f"{SOCKET} is not set; use it only in the processes of a trial"):
        open_store(AGENT_URL)


def test_an_error_on_the_way_to_the_store_is_the_answer(listen: Listen) -> None:
    def call(method: str, body: bytes) -> bytes:
        raise TrackingError("the runner is gone")

    listen(call)
    with open_store(AGENT_URL) as store:
        for _ in range(2):
            with pytest.raises(TrackingError, match="^the runner is gone$"):
                store.experiments()


def test_a_call_whose_answer_is_lost_is_repeated_and_takes_effect_once(listen: Listen, record: TrackingStore) -> None:
    calls: list[str] = []
    connections: list[WorkerConnections] = []

    def call(method: str, body: bytes) -> bytes:
        calls.append(method)
        answer = answer_call(record, method, body)
        if len(calls) == 2:
            (client,) = connections[0]._clients
            client.shutdown(socket.SHUT_RDWR)
        return answer

    connections.append(listen(call))
    with open_store(AGENT_URL) as store:
        assert store.experiments() == []
        assert store.create_experiment(config={}).id == 1
    assert calls == ["experiments", "create_experiment", "create_experiment"]
    assert len(record.experiments()) == 1


def test_a_call_that_could_not_be_sent_uses_a_new_connection(listen: Listen, record: TrackingStore) -> None:
    connections = listen(partial(answer_call, record))
    with open_store(AGENT_URL) as store:
        assert store.experiments() == []
        (client,) = connections._clients
        client.shutdown(socket.SHUT_RDWR)
        assert store.create_experiment(config={}).id == 1
    assert len(record.experiments()) == 1


def test_a_call_without_an_answer_ends_at_the_time_limit(
    listen: Listen, record: TrackingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_agent_socket, "_MARGIN", 3.9)
    released = threading.Event()

    def call(method: str, body: bytes) -> bytes:
        if method == "trials":
            released.wait(60)
        return answer_call(record, method, body)

    listen(call)
    with open_store(AGENT_URL, wait=0.1) as store:
        with pytest.raises(TrackingError, match="did not answer trials within 4 s, so the call may have taken"):
            store.trials(1)
        released.set()
        assert store.experiments() == []  # and not the late answer


@pytest.fixture
def run(record: TrackingStore) -> RunAccess:
    """Return a run that is recorded."""
    trial = record.create_trial(record.create_experiment(config={}).id, hparams={}, seed=0)
    return RunAccess(trial.experiment_id, trial.id, record.start_run(trial.id, allocation_id="a").run_id)


def report(run: RunAccess, step: int) -> MetricsReport:
    """Return a report that cannot be written twice."""
    return MetricsReport(
        trial_id=run.trial_id,
        run_id=run.run_id,
        group="training",
        steps_completed=step,
        metrics={"loss": 1.0},
        batch_metrics=[{"loss": 1.0}],
    )


def own_calls(record: TrackingStore, run: RunAccess) -> OwnCalls:
    """Return the calls of a run that its worker executes itself."""
    return OwnCalls(lambda: (open_store(record.url), Caller(user="", run=run)))


def reported_steps(record: TrackingStore, run: RunAccess) -> list[int]:
    """Return the steps of the reports of a run in the tracking store."""
    return [one.steps_completed for one in record.metrics(run.trial_id, group="training")]


@pytest.mark.parametrize("when", ["before a call", "before its execution", "after its execution"])
def test_workers_write_to_the_store_themselves_once_their_runner_is_gone(
    listen: Listen, record: TrackingStore, path: Path, run: RunAccess, when: str
) -> None:
    connections: list[WorkerConnections] = []

    def call(method: str, body: bytes) -> bytes:
        if when == "before its execution":
            connections[0].disconnect()
            return b""
        answer = answer_call(record, method, body, caller=Caller(user="ada", run=run))
        if when == "after its execution":
            connections[0].disconnect()
        return answer

    connections.append(listen(call))
    with open_agent_store(str(path), url=record.url, own=own_calls(record, run)) as store:
        store.report_metrics([report(run, 1)])
        if when == "before a call":
            connections[0].disconnect()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda step: store.report_metrics([report(run, step)]), range(2, 10)))
        assert store.trial(run.trial_id).id == run.trial_id
        assert reported_steps(record, run) == list(range(1, 10))
        with pytest.raises(TrackingError, match=r"may not call create_experiment"):
            store.create_experiment(config={})
        record.start_run(run.trial_id, allocation_id="b")
        with pytest.raises(StaleRun):
            store.report_metrics([report(run, 10)])


def test_a_runner_that_hangs_executes_no_call_that_its_worker_has_executed(
    listen: Listen, record: TrackingStore, path: Path, run: RunAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_agent_socket, "_MARGIN", 0.1)
    released, answers = threading.Event(), list[bytes]()

    def call(method: str, body: bytes) -> bytes:
        released.wait(60)
        answers.append(answer_call(record, method, body, caller=Caller(user="ada", run=run)))
        return answers[0]

    connections = listen(call)
    with open_agent_store(str(path), url=record.url, own=own_calls(record, run), wait=0.1) as store:
        store.report_metrics([report(run, 1)])
        store.report_metrics([report(run, 2)])
    released.set()
    connections.close()
    assert reported_steps(record, run) == [1, 2]
    assert len(answers) == 1
    assert b"arrived after call" in answers[0]


def test_a_call_that_is_too_long_is_refused_and_ends_the_connection(
    listen: Listen, record: TrackingStore, path: Path
) -> None:
    listen(partial(answer_call, record))
    with closing(socket.socket(socket.AF_UNIX)) as client:
        client.settimeout(60)
        client.connect(str(path))
        client.sendall(_agent_socket._PURPOSE + _agent_socket._CALL.pack(5, 1 << 30) + b"trial")
        received = b"".join(iter(lambda: client.recv(1 << 16), b""))
    assert received.startswith(_agent_socket._PURPOSE)
    assert b"the call of trial has 1024 MiB; expected at most 288 MiB" in received


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ((socket.socket, "accept"), OSError(errno.EMFILE, "too many open files")),
        ((threading.Thread, "start"), RuntimeError("can't start new thread")),
    ],
    ids=["descriptors", "threads"],
)
def test_workers_wait_while_their_agent_lacks_resources(
    listen: Listen, path: Path, monkeypatch: pytest.MonkeyPatch, step: Any, error: Exception
) -> None:
    refused = threading.Event()

    def refuse(*_: Any) -> None:
        refused.set()
        raise error

    connections = listen(refuse_calls)
    with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as second:
        with monkeypatch.context() as scarce:
            scarce.setattr(*step, refuse)
            for worker in (first, second):
                worker.settimeout(60)
                worker.connect(str(path))
            assert refused.wait(60)
        connections.preempt()
        assert (first.recv(100), second.recv(100)) == (PREEMPT, PREEMPT)


def test_a_connection_for_an_unknown_purpose_is_closed(listen: Listen, record: TrackingStore, path: Path) -> None:
    listen(partial(answer_call, record))
    with closing(socket.socket(socket.AF_UNIX)) as client:
        client.settimeout(60)
        client.connect(str(path))
        client.sendall(b"GET / HTTP/1.1\n")
        assert client.recv(100) == b""


IN_WORKER = """
import os, sys
from det_core import core
from det_core.tracking import open_store

with core.init() as context:
    for step in range(1, 301):
        context.train.report_training_metrics(step, {"loss": 1 / step})
    context.train.report_validation_metrics(300, {"loss": float("nan")})
    with context.checkpoint.store_path({"steps_completed": 300}) as (path, uuid):
        (path / "w").write_text("x")
    context.train.set_metadata({"uuid": uuid})
    child = os.fork()
    if not child:
        assert [context._store.trial(1).metadata for _ in range(50)] == [{"uuid": uuid}] * 50
        context._store.close()
        os._exit(7)
    assert [context._store.experiment(1).id for _ in range(50)] == [1] * 50
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    for operation in context.searcher.operations():
        operation.report_completed(0.5)
print("sqlalchemy" in sys.modules)
"""


def start_worker(record: TrackingStore, code: str, directory: Path) -> tuple[NodeAgent, list[str]]:
    """Start a run of the only trial with this code, and return its agent and its output."""
    config: dict[str, Any] = {
        "name": "remote",
        "entrypoint": "true",
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 300}},
        "checkpoint_storage": {"type": "directory", "container_path": str(directory / "checkpoints")},
    }
    experiment = record.create_experiment(config=config)
    trial = record.create_trial(experiment.id, hparams={}, seed=0)
    record.set_searcher_operation(trial.id, 300)
    run = record.start_run(trial.id, allocation_id="a")
    caller = Caller(user=experiment.owner, run=RunAccess(experiment.id, trial.id, run.run_id))
    info = build_run_info(record, parse_config(config).dump(), trial, run, None)
    info["cluster.json"] |= {"master_url": AGENT_URL}
    (directory / "code").mkdir()
    output: list[str] = []
    request = LaunchRequest(
        key="remote",
        argv=[PYTHON, "-W", "error", "-c", code],
        code=pack_context_dir(directory / "code"),
        info=info,
        slots=1,
        log=lambda rank, stdtype, text: output.append(text),
        call=partial(answer_call, record, caller=caller),
    )
    return NodeAgent(request, AllocatedNode(name="n1", slot_ids=[0])), output


@pytest.mark.integration
def test_a_worker_trains_with_the_tracking_store_of_its_runner(record: TrackingStore, tmp_path: Path) -> None:
    agent, output = start_worker(record, IN_WORKER, tmp_path)
    end = agent.wait(60)
    agent.close()
    assert (end, output[-1:]) == (Exit(code=0), ["False"]), output
    trial = record.trial(1)
    assert trial.steps_completed == 300
    assert [report.steps_completed for report in record.metrics(1, group="training")] == list(range(1, 301))
    (validation,) = record.metrics(1, group="validation")
    assert repr(validation.metrics) == "{'loss': nan}"
    (checkpoint,) = record.checkpoints(trial_id=1)
    assert (checkpoint.state, trial.metadata) == (CheckpointState.COMPLETED, {"uuid": checkpoint.uuid})
    operation = record.searcher_operation(1)
    assert operation is not None
    assert (operation.completed, operation.metric) == (True, 0.5)
