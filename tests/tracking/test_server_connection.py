"""Calls of the tracking store over HTTP. Other tests of this directory cover the methods, also with lost answers."""

from __future__ import annotations

import os
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import MISSING, fields, is_dataclass, replace
from datetime import datetime, timedelta, timezone
from enum import Enum
from functools import partial
from inspect import Parameter, signature
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
import sqlalchemy as sa

from det_core.errors import ExperimentBusy, RecordNotFound, StoreBusy, TrackingError
from det_core.interfaces.account_records import Role
from det_core.interfaces.records import LogLine, Machine, MetricsReport, Run, TrialRecord
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import _answered_calls, _experiment_deletion, is_server_url, open_store
from det_core.tracking._database import Database
from det_core.tracking._schema import answered_calls
from det_core.tracking.access_tokens import delete_token, find_token, save_token
from det_core.tracking.remote import (
    Caller,
    RunAccess,
    ServerConnection,
    _answers,
    _server_connection,
    answer_call,
    explain_version_mismatch,
    find_method,
    open_remote_store,
)
from det_core.tracking.remote._calls import METHODS, add_call_id
from det_core.tracking.remote._server_address import parse_server_url
from det_core.version import __version__

from ..answering_server import Behaviour, saved_servers, served
from ..comm.job import free_port
from ..waiting import wait_for

Report = Callable[..., MetricsReport]


@pytest.fixture
def direct(tmp_path: Path) -> Iterator[TrackingStore]:
    with open_store(f"sqlite:///{tmp_path}/det.db") as store:
        yield store


@pytest.fixture
def trial(direct: TrackingStore) -> TrialRecord:
    return direct.create_trial(direct.create_experiment(config={"name": "e"}).id, hparams={}, seed=0)


@pytest.fixture
def run(direct: TrackingStore, trial: TrialRecord) -> Run:
    return direct.start_run(trial.id, allocation_id="first")


@pytest.fixture
def behaviour(direct: TrackingStore) -> Behaviour:
    return Behaviour(direct)


@pytest.fixture
def address(behaviour: Behaviour) -> Iterator[str]:
    with served(behaviour) as url:
        yield url


@pytest.fixture
def remote(address: str) -> Iterator[TrackingStore]:
    with open_store(address) as store:
        yield store


def line(run: Run, text: str) -> LogLine:
    return LogLine(trial_id=run.trial_id, run_id=run.run_id, rank=0, stdtype="stdout", log=text, time=datetime.now())


# Which methods write


SPECIAL = {"digest": "0" * 64, "expires": datetime(2100, 1, 1, tzinfo=timezone.utc), "machine": Machine(host="x")}
"""Arguments whose values cannot be derived from their annotations, by name."""


def example(hint: Any) -> Any:
    """Return a value of an annotation, which refers to the first record of its kind."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Sequence, Collection, list):
        return [example(arguments[0])]
    if origin is UnionType or NoneType in arguments:
        return example(arguments[0])
    if origin is Mapping:
        return {}
    if isinstance(hint, type) and is_dataclass(hint):
        hints = get_type_hints(hint)
        needed = (one.name for one in fields(hint) if one.default is one.default_factory is MISSING)
        return hint(**{name: example(hints[name]) for name in needed})
    if isinstance(hint, type) and issubclass(hint, Enum):
        return next(iter(hint))
    return {int: 1, float: 0.5, str: "x", bool: False, bytes: b"x", Any: None, datetime: datetime.now()}[hint]


@pytest.mark.parametrize("name", sorted(METHODS))
def test_exactly_the_methods_that_write_count_as_writing(
    name: str, direct: TrackingStore, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "cluster_id":
        pytest.skip("a property")
    direct.begin_checkpoint("x", trial_id=1, run_id=1, storage={})
    direct.create_model("m")
    direct.create_user("x", role=Role.ADMIN, password="")
    method = getattr(direct, name)
    hints = get_type_hints(getattr(TrackingStore, name))
    required = (one.name for one in signature(method).parameters.values() if one.default is Parameter.empty)
    opened: list[bool] = []
    transaction = Database._transaction

    def watch(self: Database, **options: bool) -> Any:
        if threading.current_thread() is threading.main_thread():  # not one that a test before has left
            opened.append(True)
        return transaction(self, **options)

    monkeypatch.setattr(Database, "_transaction", watch)
    given = {argument: SPECIAL.get(argument) or example(hints[argument]) for argument in required}
    with suppress(TrackingError, ValueError):
        result = method(**given)
        if isinstance(result, Iterator):
            list(result)
    assert bool(opened) is find_method(name).rights.writes


# Exactly once


def test_calls_of_a_lane_are_numbered(remote: TrackingStore, behaviour: Behaviour, trial: TrialRecord) -> None:
    for number in range(3):
        remote.create_experiment(config={"name": str(number)})
        remote.trial(trial.id)
    ids = [headers["det-call-id"].rpartition("-") for _, headers in behaviour.requests if "det-call-id" in headers]
    assert [number for _, _, number in ids] == ["0", "1", "2"]
    assert len({lane for lane, _, _ in ids}) == 1


def test_each_thread_that_calls_has_a_lane(remote: TrackingStore, direct: TrackingStore, run: Run) -> None:
    barrier = threading.Barrier(8)

    def add(thread: int) -> None:
        barrier.wait(60)
        for number in range(5):
            remote.add_logs([line(run, f"{thread}.{number}")])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(8)))
    found = [one.log for one in direct.logs(run.trial_id)]
    assert sorted(found) == sorted(f"{thread}.{number}" for thread in range(8) for number in range(5))


def test_a_call_whose_answer_is_lost_takes_effect_once(
    remote: TrackingStore, direct: TrackingStore, behaviour: Behaviour, trial: TrialRecord
) -> None:
    behaviour.lost_answers = 3
    assert [remote.count_restart(trial.id), remote.count_restart(trial.id)] == [1, 2]
    assert direct.trial(trial.id).restarts == 2


def test_a_repeated_call_has_the_answer_of_the_first(direct: TrackingStore, trial: TrialRecord) -> None:
    store = numbered_store(direct, "a-1")
    assert [store.count_restart(trial.id) for _ in range(3)] == [1, 1, 1]
    assert direct.trial(trial.id).restarts == 1


def numbered_store(direct: TrackingStore, call_id: str) -> TrackingStore:
    """Return a remote store all of whose calls have the same id."""
    return open_remote_store(lambda method, body: answer_call(direct, method, body, call_id=call_id), url="")


def test_a_call_of_a_worker_keeps_its_id_on_the_way_from_its_runner_to_a_server(
    direct: TrackingStore, remote: TrackingStore, trial: TrialRecord, run: Run
) -> None:
    caller = Caller(user="ann", run=RunAccess(trial.experiment_id, trial.id, run.run_id))
    method = find_method("report_system_metrics")
    sample = example(get_type_hints(TrackingStore.report_system_metrics)["samples"])[0]
    body = add_call_id(f"{'a' * 32}-1", method.dump_arguments([[sample]], {}))
    answers = {answer_call(remote, method.name, body, caller=caller) for _ in range(3)}
    assert answers == {b'{"returned":null}'}
    assert len(list(direct.system_metrics(trial.id))) == 1
    foreign = add_call_id(f"{'a' * 32}-2", method.dump_arguments([[replace(sample, trial_id=2)]], {}))
    assert b"only for its own run" in answer_call(remote, method.name, foreign, caller=caller)


def test_a_call_that_failed_is_executed_again(direct: TrackingStore, trial: TrialRecord) -> None:
    store = numbered_store(direct, "a-1")
    with pytest.raises(RecordNotFound):
        store.count_restart(99)
    assert store.count_restart(trial.id) == 1


def test_a_call_that_arrives_after_a_later_one_is_refused(direct: TrackingStore, trial: TrialRecord) -> None:
    numbered_store(direct, "a-2").count_restart(trial.id)
    with pytest.raises(TrackingError, match="call 1 arrived after call 2, so it was not executed"):
        numbered_store(direct, "a-1").count_restart(trial.id)
    assert direct.trial(trial.id).restarts == 1


@pytest.mark.parametrize("call_id", ["", "5", "a-", "a-x", "a" * 200 + "-1", f"a-{2**63}"])
def test_malformed_ids_are_refused(direct: TrackingStore, trial: TrialRecord, call_id: str) -> None:
    with pytest.raises(TrackingError, match="expected LANE-NUMBER"):
        numbered_store(direct, call_id).count_restart(trial.id)
    assert direct.trial(trial.id).restarts == 0


def test_an_answer_that_cannot_be_sent_leaves_no_effect(direct: TrackingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("det_core.tracking.remote._calls.MAX_BODY_BYTES", 1000)
    with pytest.raises(TrackingError, match="the answer of create_experiment has more than"):
        numbered_store(direct, "a-1").create_experiment(config={"name": "e" * 800})
    assert direct.experiments() == []


def test_a_call_that_fails_after_its_write_leaves_no_effect_and_no_open_transaction(tmp_path: Path) -> None:
    call = _answered_calls._AnsweredCall("a", 1)
    with open_store(f"sqlite:///{tmp_path}/det.db", wait=1.0) as store:
        with pytest.raises(ZeroDivisionError), call:
            store.create_experiment(config={"name": "lost"})
            1 / 0  # noqa: B018
        store.create_experiment(config={"name": "later"})
        assert [one.config["name"] for one in store.experiments()] == ["later"]


ANN = Caller(user="ann", address="192.0.2.1")


@pytest.mark.parametrize("part", ["the entry", "the answer", "nothing"])
def test_a_write_its_entry_and_its_answer_are_one_transaction(
    direct: TrackingStore, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    body = find_method("create_model").dump_arguments(["m"], {})
    call = partial(answer_call, direct, "create_model", body, caller=ANN, call_id="lane-1")
    with monkeypatch.context() as patch:
        if part == "the entry":
            patch.setattr(_answered_calls, "insert_action", lambda *arguments: 1 / 0)
        if part == "the answer":
            patch.setattr(_answered_calls._AnsweredCall, "_remember", lambda *arguments: 1 / 0)
        answer = call()
    if part != "nothing":
        assert b"ZeroDivisionError" in answer
        assert (direct.models(), direct.actions()) == ([], [])
    first, second = call(), call()
    assert first == second
    assert [model.owner for model in direct.models()] == ["ann"]
    assert [(entry.user, entry.action, entry.target) for entry in direct.actions()] == [
        ("ann", "create_model", "model 1")
    ]


def test_a_call_in_pieces_has_one_entry_with_the_first_piece(
    direct: TrackingStore, trial: TrialRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed after the first piece leaves no deletion that the audit log does not have."""
    body = find_method("delete_experiment").dump_arguments([trial.experiment_id], {})
    call = partial(answer_call, direct, "delete_experiment", body, caller=ANN, call_id="lane-1")
    pieces: list[int] = []
    write = Database._transaction

    def note(self: Database, **options: bool) -> Any:
        pieces.append(len(direct.actions()))
        return write(self, **options)

    monkeypatch.setattr(Database, "_transaction", note)
    assert call() == call()
    assert len(pieces) > 2 and pieces[0] == 0 and pieces[-1] == 1
    assert [entry.target for entry in direct.actions()] == [f"experiment {trial.experiment_id}"]


@pytest.mark.parametrize(
    ("ended", "method", "refusal"),
    [
        ("session", "edit_model", b"log in again"),
        ("run", "edit_model", b"the newest is run 2"),
        ("ownership", "delete_model", b"model 2 belongs to bob"),
    ],
    ids=["session", "run", "ownership"],
)
def test_a_change_that_waited_while_the_right_to_it_ended_is_not_made(
    direct: TrackingStore,
    trial: TrialRecord,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    ended: str,
    method: str,
    refusal: bytes,
) -> None:
    run = direct.start_run(trial.id, allocation_id="a")
    direct.create_model("m", owner="ann")
    is_valid, caller = {"session"}, ANN
    if ended == "run":
        access = RunAccess(trial.experiment_id, trial.id, run.run_id)
        caller = Caller(user="ann", run=access, address="192.0.2.1")

    def end() -> None:
        if ended == "session":
            is_valid.clear()
            return
        with open_store(url) as other:
            if ended == "run":
                other.start_run(trial.id, allocation_id="b")
            else:
                other.delete_model("m")
                other.create_model("m", owner="bob")

    change = getattr(direct, method)

    def change_late(*arguments: Any, **values: Any) -> Any:
        thread = threading.Thread(target=end)  # without the transaction of this call
        thread.start()
        thread.join(60)
        return change(*arguments, **values)

    monkeypatch.setattr(direct, method, change_late)
    body = find_method(method).dump_arguments(["m"], {"notes": "x"} if method == "edit_model" else {})
    answer = answer_call(direct, method, body, caller=caller, call_id="lane-1", is_admitted=lambda: bool(is_valid))
    assert refusal in answer
    assert (direct.model("m").notes, direct.actions()) == ("", [])


@pytest.mark.parametrize("ended", ["token", "run"])
@pytest.mark.parametrize(("seconds", "is_written"), [(60.0, True), (-1.0, False)], ids=["at once", "late"])
def test_a_report_that_waited_while_its_token_or_run_ended_is_not_made(
    direct: TrackingStore,
    run: Run,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    is_written: bool,
    ended: str,
) -> None:
    monkeypatch.setattr(_answers, "_ADMITTED_SECONDS", seconds)
    access = RunAccess(direct.trial(run.trial_id).experiment_id, run.trial_id, run.run_id)
    report = direct.set_trial_progress

    def end() -> None:
        with open_store(url) as other:
            other.end_run(run.trial_id, run.run_id, exit_code=0)

    def report_late(**arguments: Any) -> None:
        if ended == "run":
            thread = threading.Thread(target=end)  # without the transaction of this call
            thread.start()
            thread.join(60)
        report(**arguments)

    monkeypatch.setattr(direct, "set_trial_progress", report_late)
    body = find_method("set_trial_progress").dump_arguments([run.trial_id, run.run_id, 0.5], {})
    caller = Caller(user="ann", run=access, address="192.0.2.1")
    answer = answer_call(direct, "set_trial_progress", body, caller=caller, is_admitted=lambda: ended == "run")
    assert (b"log in again" in answer or b"it has ended" in answer) is not is_written
    assert (direct.trial(run.trial_id).progress == 0.5) is is_written


def test_a_deletion_in_pieces_ends_with_the_right_to_it(
    direct: TrackingStore, trial: TrialRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_experiment_deletion, "_PIECE", 2)
    of_run = {"trial_id": trial.id, "run_id": 1, "rank": 0, "stdtype": "stdout", "time": datetime.now(timezone.utc)}
    direct.add_logs([LogLine(**of_run, log=str(number)) for number in range(9)])
    admitted = iter([True, True, True, False])
    body = find_method("delete_experiment").dump_arguments([trial.experiment_id], {})
    answer = answer_call(direct, "delete_experiment", body, caller=ANN, is_admitted=lambda: next(admitted))
    assert b"log in again" in answer
    assert len(list(direct.logs(trial.id))) == 7  # two tables were empty


def test_an_audited_call_that_changes_nothing_has_no_entry(direct: TrackingStore) -> None:
    body = find_method("edit_experiment").dump_arguments([9], {"notes": "x"})
    assert b"RecordNotFound" in answer_call(direct, "edit_experiment", body, caller=ANN)
    assert direct.actions() == []


def test_answers_are_kept_for_an_hour(direct: TrackingStore, trial: TrialRecord) -> None:
    numbered_store(direct, "old-1").count_restart(trial.id)
    numbered_store(direct, "new-1").count_restart(trial.id)
    database: Database = direct._database  # type: ignore[attr-defined]
    with database.write() as connection:
        past = datetime.now(timezone.utc) - timedelta(minutes=61)
        connection.execute(answered_calls.update().where(answered_calls.c.lane == "old").values(time=past))
    numbered_store(direct, "newest-1").count_restart(trial.id)
    with database.read() as connection:
        assert set(connection.execute(sa.select(answered_calls.c.lane)).scalars()) == {"new", "newest"}


@pytest.mark.parametrize("is_known", [False, True])
def test_a_call_that_is_repeated_during_its_first_execution_takes_effect_once(url: str, is_known: bool) -> None:
    """Six servers over one database execute the same call at the same time."""
    with ExitStack() as stack, ThreadPoolExecutor(6) as pool:
        servers = [stack.enter_context(open_store(url)) for _ in range(6)]
        store = servers[0]
        trial = store.create_trial(store.create_experiment(config={}).id, hparams={}, seed=0)
        if is_known:
            numbered_store(store, "lane-0").count_interruption(trial.id)
        barrier = threading.Barrier(6)

        def execute(server: TrackingStore) -> int:
            barrier.wait(60)
            return numbered_store(server, "lane-1").count_restart(trial.id)

        assert list(pool.map(execute, servers)) == [1] * 6
        assert store.trial(trial.id).restarts == 1


def test_a_deletion_that_is_repeated_succeeds(
    remote: TrackingStore, direct: TrackingStore, behaviour: Behaviour, trial: TrialRecord
) -> None:
    behaviour.lost_answers = 1
    remote.delete_experiment(trial.experiment_id)
    assert direct.experiments() == []


def test_a_forked_process_has_lanes_of_its_own(
    remote: TrackingStore, direct: TrackingStore, behaviour: Behaviour, trial: TrialRecord
) -> None:
    remote.count_restart(trial.id)
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if remote.count_restart(trial.id) == 2 else 3)
        finally:
            os._exit(4)
    assert os.waitpid(child, 0)[1] == 0
    assert remote.count_restart(trial.id) == 3
    ids = [headers["det-call-id"] for _, headers in behaviour.requests if "det-call-id" in headers]
    assert len(set(ids)) == 3


# Servers that are away


def test_calls_wait_for_a_server_that_is_started_again(
    direct: TrackingStore, trial: TrialRecord, behaviour: Behaviour
) -> None:
    with served(behaviour) as url:
        store = open_store(url)
        port = int(url.rpartition(":")[2])
    with store, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.count_restart, trial.id)
        with pytest.raises(futures.TimeoutError):
            waiting.result(0.5)
        with served(behaviour, port=port):
            assert waiting.result(60) == 1


@pytest.mark.parametrize("status", [502, 503, 504])
def test_calls_wait_for_a_server_behind_a_proxy(
    remote: TrackingStore, behaviour: Behaviour, trial: TrialRecord, status: int
) -> None:
    behaviour.status = status
    with ThreadPoolExecutor(1) as pool:
        before = len(behaviour.requests)
        waiting = pool.submit(remote.count_restart, trial.id)
        wait_for(lambda: len(behaviour.requests) > before + 1)
        behaviour.status = 200
        assert waiting.result(60) == 1


def test_a_server_that_stays_away_is_an_error_that_says_what_to_look_for(address: str) -> None:
    port = free_port()
    started = time.monotonic()
    with pytest.raises(StoreBusy, match=rf"http://127.0.0.1:{port} is unavailable: .*is det server running there\?"):
        open_store(f"http://127.0.0.1:{port}", wait=0.5)
    assert 0.5 <= time.monotonic() - started < 60


def test_a_wait_is_announced(
    behaviour: Behaviour, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("det_core.tracking._outage._SAY_AFTER", 0.0)
    behaviour.status = 503
    with served(behaviour) as url, pytest.raises(StoreBusy):
        open_store(url, wait=0.5)
    (record,) = caplog.records
    assert record.getMessage().startswith(f"the server {url} is unavailable, will retry for 0 s: ")


def test_connections_that_the_server_closed_are_replaced_at_once(
    remote: TrackingStore, behaviour: Behaviour, trial: TrialRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("det_core.tracking._outage._PAUSE", 60.0)
    remote.trial(trial.id)
    behaviour.lost_answers = 1
    started = time.monotonic()
    remote.trial(trial.id)
    assert time.monotonic() - started < 30


def test_a_server_that_is_something_else_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        thread = threading.Thread(target=_greet_as_ssh, args=(other,))
        thread.start()
        with pytest.raises(TrackingError, match="the answer is not HTTP; check the port"):
            open_store(f"http://127.0.0.1:{other.getsockname()[1]}")
        thread.join(60)


def _greet_as_ssh(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(1)
        connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
        while connection.recv(4096):
            pass


def test_another_web_server_is_an_error(behaviour: Behaviour) -> None:
    behaviour.version = None
    with served(behaviour) as url, pytest.raises(TrackingError, match="is not a det server.*check the port"):
        open_store(url)


def test_a_host_without_an_address_is_an_error_at_once() -> None:
    with pytest.raises(TrackingError, match=r"there is no host of this name; check the URL|unavailable"):
        open_store("https://det.invalid", wait=0)


# Versions


@pytest.mark.parametrize(
    ("client", "server", "advice"),
    [
        ("0.1.0", "0.1.7", None),
        ("0.1.0", "0.1.0.dev3", None),
        ("0.1.0", "0.2.0", "runs det 0.2.0 and the client det 0.1.0; upgrade the client: pip install -U det-core"),
        ("1.0.0", "0.9.0", "upgrade the server, there with pip install -U det-server, or .*'det-core==0.9.*'"),
        ("0.10.0", "0.9.0", "upgrade the server"),
        ("", "0.9.0", "upgrade the client"),
        ("0.9.0", "?", "upgrade the server, there with pip install -U det-server$"),
        ("0.9.0", "9" * 5000 + ".1", "upgrade the server, there with pip install -U det-server$"),
    ],
)
def test_versions_that_do_not_fit_say_which_to_upgrade(client: str, server: str, advice: str | None) -> None:
    found = explain_version_mismatch(client, server)
    assert found is None if advice is None else found and re.search(advice, found)


def test_a_server_of_another_release_is_an_error(behaviour: Behaviour) -> None:
    behaviour.version = "99.0.0"
    with (
        served(behaviour) as url,
        pytest.raises(TrackingError, match=f"runs det 99.0.0 and .*{__version__}"),
    ):
        open_store(url)


# Addresses and tokens


@pytest.mark.parametrize(
    ("url", "normalized", "token"),
    [
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080", None),
        ("http://127.0.0.1:8080/?token=a%2Bb", "http://127.0.0.1:8080", "a+b"),
        ("HTTPS://Det.Example.org:443", "https://det.example.org", None),
        ("https://[2001:db8::1]:8443", "https://[2001:db8::1]:8443", None),
        ("http://[::1]:8080?token=x", "http://[::1]:8080", "x"),
        ("http://localhost", "http://localhost", None),
        ("http://127.9.9.9:1", "http://127.9.9.9:1", None),
    ],
)
def test_addresses_have_one_form(url: str, normalized: str, token: str | None) -> None:
    address, found = parse_server_url(url)
    assert (address.url, found) == (normalized, token)
    assert parse_server_url(address.url) == (address, None)
    assert is_server_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://",
        "https://host/path",
        "https://host:x",
        "https://host:99999",
        "https://user:secret@host",
        "https://host/?token=",
        "https://host/?token=a&token=b",
        "https://host/?a=b",
        "https://host/#x",
        "https://[::1",
    ],
)
def test_malformed_addresses_are_refused_without_showing_secrets(url: str) -> None:
    with pytest.raises(TrackingError, match="is not the URL of a det server; expected https://HOST:PORT") as raised:
        open_store(url)
    assert "secret" not in str(raised.value)
    assert "token=" not in str(raised.value)


def test_tokens_are_not_sent_over_a_network_in_the_clear() -> None:
    with pytest.raises(TrackingError, match=r"without encryption; use https://, or a tunnel: ssh -L 80:127.0.0.1:80"):
        open_store("http://det.example.org:80")


def test_a_token_in_the_url_is_used_and_not_kept(
    behaviour: Behaviour, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    behaviour.token = "secret"
    with open_store(f"{address}/?token=secret") as store:
        assert store.url == address
        assert store.experiments() == []
    with open_store(address) as again:  # as the SDK does with the URL of an object
        assert again.experiments() == []
    assert saved_servers() == []
    assert all("secret" not in path for path, _ in behaviour.requests)


@pytest.mark.parametrize("token", ["", "wrong"])
def test_a_missing_or_wrong_token_is_an_error_that_names_the_command(
    behaviour: Behaviour, address: str, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    behaviour.token = "secret"
    monkeypatch.setenv("DET_TOKEN", token)
    with pytest.raises(TrackingError, match=f"the token is unknown; to log in: det login {address}"):
        open_store(address)


def test_saved_tokens_are_for_their_server_only(det_home: Path) -> None:
    save_token("http://127.0.0.1:1/", "one")
    save_token("https://det.example.org:443", "two")
    assert find_token("http://127.0.0.1:1") == "one"
    assert find_token("https://det.example.org") == "two"
    assert find_token("https://det.example.org:8080") is None
    assert saved_servers() == ["http://127.0.0.1:1", "https://det.example.org"]
    assert (det_home / "tokens.json").stat().st_mode & 0o777 == 0o600
    assert delete_token("http://127.0.0.1:1")
    assert not delete_token("http://127.0.0.1:1")
    assert find_token("http://127.0.0.1:1") is None


def test_tokens_that_are_saved_at_the_same_time_are_all_kept() -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda port: save_token(f"http://127.0.0.1:{port}", str(port)), range(1, 25)))
    assert len(saved_servers()) == 24


def test_a_damaged_file_of_tokens_is_an_error_that_names_it(det_home: Path) -> None:
    save_token("http://127.0.0.1:1", "one")
    (det_home / "tokens.json").write_text("{")
    with pytest.raises(TrackingError, match=r"tokens\.json cannot be read .*delete it and log in"):
        find_token("http://127.0.0.1:1")


def test_the_variable_is_for_the_default_server_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_TOKEN", "mine")
    assert find_token("https://any.example.org") is None
    monkeypatch.setenv("DET_MASTER", "https://det.example.org/")
    assert find_token("https://det.example.org") == "mine"
    assert find_token("https://evil.example.org") is None
    for database in ("sqlite:////tmp/det.db", "postgresql://det.example.org"):
        monkeypatch.setenv("DET_MASTER", database)
        assert find_token("https://det.example.org") is None


def test_a_token_with_a_line_break_is_an_error_that_does_not_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_MASTER", "https://det.example.org")
    monkeypatch.setenv("DET_TOKEN", "s3cret\n")
    with pytest.raises(TrackingError, match="the token for https://det.example.org in DET_TOKEN has a line") as raised:
        open_store()
    assert "s3cret" not in str(raised.value)


def test_a_token_that_was_replaced_is_read_again(
    remote: TrackingStore, behaviour: Behaviour, address: str, trial: TrialRecord
) -> None:
    """A server that is started again on this host saves a new token."""
    behaviour.token = "new"
    with pytest.raises(TrackingError, match="det login"):
        remote.count_restart(trial.id)
    save_token(address, "new")
    assert remote.count_restart(trial.id) == 1


def test_the_default_store_is_that_of_the_environment(
    address: str, direct: TrackingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = direct.create_experiment(config={"name": "there"})
    monkeypatch.setenv("DET_MASTER_ADDR", address)
    with open_store() as store:
        assert [one.name for one in store.experiments()] == [experiment.name]
    monkeypatch.setenv("DET_MASTER", "")
    with open_store() as store:
        assert store.url == address


# Other requests


def test_errors_of_requests_have_classes(behaviour: Behaviour, address: str) -> None:
    def busy(_: Mapping[str, Any]) -> Mapping[str, Any]:
        raise PermissionError("experiment 1 is being run by somebody")

    behaviour.routes["/api/busy"] = busy
    connection = ServerConnection(address)
    with pytest.raises(ExperimentBusy, match=f"{address}: experiment 1 is being run by somebody"):
        connection.post("/api/busy", {})
    with pytest.raises(RecordNotFound, match="there is no /api/nothing"):
        connection.post("/api/nothing", {})
    behaviour.status = 500
    with pytest.raises(TrackingError, match="not now"):
        connection.post("/api/busy", {})
    connection.close()


def test_a_repeated_start_finds_its_runner(behaviour: Behaviour, address: str) -> None:
    started: list[bool] = []

    def start(_: Mapping[str, Any]) -> Mapping[str, Any]:
        if started:
            raise PermissionError("it has a runner")
        started.append(True)
        return {"runs": True}

    behaviour.routes["/api/start"] = start
    behaviour.lost_answers = 1
    connection = ServerConnection(address)
    assert connection.post("/api/start", {}) == {}
    connection.close()


def test_a_start_that_was_refused_before_has_not_started_the_runner(behaviour: Behaviour, address: str) -> None:
    def busy(_: Mapping[str, Any]) -> Mapping[str, Any]:
        raise PermissionError("it has a runner")

    behaviour.routes["/api/start"], behaviour.token = busy, "new"
    connection = ServerConnection(f"{address}?token=old")
    save_token(address, "new")
    with pytest.raises(ExperimentBusy, match="it has a runner"):
        connection.post("/api/start", {})
    connection.close()


# TLS


def test_certificates_are_verified(
    behaviour: Behaviour, certificate: Path, trial: TrialRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with served(behaviour, tls=context) as url:
        with pytest.raises(TrackingError, match="certificate cannot be verified; .* set DET_MASTER_CERT_FILE"):
            open_store(url)
        monkeypatch.setenv("DET_MASTER_CERT_FILE", str(certificate))
        with open_store(url) as store:
            assert store.count_restart(trial.id) == 1
        with pytest.raises(TrackingError, match="certificate"):
            open_store(url.replace("127.0.0.1", "localhost"))
        monkeypatch.setenv("DET_MASTER_CERT_FILE", "/no/such/file")
        with pytest.raises(TrackingError, match="DET_MASTER_CERT_FILE is '/no/such/file', which cannot be read"):
            open_store(url)


def test_a_server_without_tls_is_an_error(address: str) -> None:
    with pytest.raises(TrackingError, match=r"does not speak TLS as expected; is it https:// or http://"):
        open_store(address.replace("http", "https"))


# Killed servers

SERVE = """
import sys
from tests.answering_server import Behaviour, served
from det_core.tracking import open_store
with open_store(sys.argv[1]) as store, served(Behaviour(store), port=int(sys.argv[2])) as url:
    print(url, flush=True)
    sys.stdin.read()
"""


@pytest.mark.integration
def test_a_killed_server_loses_and_doubles_nothing(direct: TrackingStore, run: Run, tmp_path: Path) -> None:
    """Six threads report while the server is killed four times."""
    root = Path(__file__).parents[2]

    def start(port: str) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-c", SERVE, f"sqlite:///{tmp_path}/det.db", port]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root)
        assert process.stdout
        return process, process.stdout.readline().strip()

    process, url = start("0")
    counts, stop = [0] * 6, threading.Event()

    def report(thread: int) -> None:
        with open_store(url) as store:
            while not stop.is_set():
                number = counts[thread]
                store.add_logs([line(run, f"{thread}.{number}")])
                store.report_metrics(
                    [
                        MetricsReport(
                            trial_id=run.trial_id,
                            run_id=run.run_id,
                            group=f"g{thread}",
                            steps_completed=number,
                            metrics={"loss": float(number)},
                            batch_metrics=[{"loss": float(number)}],
                        )
                    ]
                )
                store.count_restart(run.trial_id)
                counts[thread] = number + 1

    try:
        with ThreadPoolExecutor(6) as pool:
            running = [pool.submit(report, thread) for thread in range(6)]
            for _ in range(4):
                reached = sum(counts)
                wait_for(lambda reached=reached: sum(counts) > reached + 12)  # type: ignore[misc]
                process.kill()
                process.communicate()
                process, _ = start(url.rpartition(":")[2])
            stop.set()
            for one in running:
                one.result(60)
    finally:
        stop.set()
        process.kill()
        process.communicate()
    expected = [f"{thread}.{number}" for thread in range(6) for number in range(counts[thread])]
    assert sorted(one.log for one in direct.logs(run.trial_id)) == sorted(expected)
    assert direct.trial(run.trial_id).restarts == sum(counts)
    reports = list(direct.metrics(run.trial_id))
    assert len(reports) == len(expected)
    assert all(one.batch_metrics == [{"loss": one.metrics["loss"]}] for one in reports)


# Downloads


def test_a_download_continues_where_it_was_interrupted(behaviour: Behaviour, address: str, tmp_path: Path) -> None:
    behaviour.files["/file"] = content = os.urandom(300_000)
    behaviour.cuts = [0, 100_000, 0, 50_000]
    with closing(ServerConnection(address)) as server:
        server.download("/file", tmp_path / "file", len(content))
    assert (tmp_path / "file").read_bytes() == content
    ranges = [headers.get("Range") for path, headers in behaviour.requests if path == "/file"]
    assert ranges == [None, None, "bytes=100000-", "bytes=100000-", "bytes=150000-"]


def test_a_download_with_a_renewed_token_continues_where_it_was_interrupted(
    behaviour: Behaviour, address: str, tmp_path: Path
) -> None:
    behaviour.files["/file"] = content = os.urandom(300_000)
    behaviour.token, behaviour.cuts = "new", [0]
    save_token(address, "old")
    with closing(ServerConnection(address)) as server:
        save_token(address, "new")
        server.download("/file", tmp_path / "file", len(content))
    assert (tmp_path / "file").read_bytes() == content


@pytest.mark.parametrize("size", [99, 101])
def test_a_download_of_another_size_is_an_error(behaviour: Behaviour, address: str, tmp_path: Path, size: int) -> None:
    behaviour.files["/file"] = bytes(100)
    with closing(ServerConnection(address)) as server, pytest.raises(TrackingError, match=f"expected {size}"):
        server.download("/file", tmp_path / "file", size)


@pytest.mark.parametrize("kind", ["file", "answer"])
def test_an_endless_answer_takes_neither_disk_nor_memory(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_server_connection, "MAX_BODY_BYTES", 5000)
    with (
        _endless_server() as url,
        closing(ServerConnection(url)) as server,
        pytest.raises(TrackingError, match="the server sends more than the expected 5000 bytes"),
    ):
        if kind == "file":
            server.download("/file", tmp_path / "file", 5000)
        else:
            server.get("/api/info")
    assert kind == "answer" or (tmp_path / "file").stat().st_size < 4 << 20


@contextmanager
def _endless_server() -> Iterator[str]:
    """Answer requests with a body without an end."""

    def answer(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                connection.sendall(bytes(1 << 20))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(60)


def test_a_document_that_is_nested_too_deep_is_an_error(behaviour: Behaviour, address: str) -> None:
    behaviour.files["/deep"] = b'{"a":' * 100_000
    with closing(ServerConnection(address)) as server, pytest.raises(TrackingError, match="expected a JSON object"):
        server.get("/deep")


def test_a_missing_file_is_an_error(behaviour: Behaviour, address: str, tmp_path: Path) -> None:
    with closing(ServerConnection(address)) as server, pytest.raises(RecordNotFound, match="there is no /file"):
        server.download("/file", tmp_path / "file", 1)


def test_a_full_disk_is_no_failure_of_the_server(behaviour: Behaviour, address: str) -> None:
    behaviour.files["/file"] = bytes(100_000)
    with closing(ServerConnection(address)) as server, pytest.raises(OSError, match="No space left on device"):
        server.download("/file", Path("/dev/full"), 100_000)
