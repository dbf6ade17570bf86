"""Tests of the API: calls of the store, submissions, and the limits of tokens."""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import pickle
import time
from collections.abc import Callable
from typing import Any

import pytest

from det_core.errors import RecordNotFound, TrackingError
from det_core.interfaces.account_records import Role
from det_core.interfaces.records import MetricsReport
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store
from det_core.version import __version__

from .serving import ServedSite, account_access, call_with_peak_memory, served, site_without_server


def test_info(local: ServedSite, team: ServedSite) -> None:
    answer = local.commands.get("/api/info")
    assert answer.json == {
        "version": __version__,
        "cluster_id": local.store.cluster_id,
        "checkpoint_storage": None,
        "user": local.site.access._user.name,  # type: ignore[attr-defined]
        "role": "ADMIN",
    }
    assert team.program("vic").get("/api/info").json["role"] == "VIEWER"


# Calls of the store


def test_a_store_is_used_through_a_server(served_local: ServedSite) -> None:
    link = f"{served_local.site.url}/?token={served_local.site.access.link_token}"  # type: ignore[attr-defined]
    with open_store(link) as remote:
        experiment = remote.create_experiment(config={"name": "far away"})
        trial = remote.create_trial(experiment.id, hparams={"lr": 0.1}, seed=0)
        run = remote.start_run(trial.id, allocation_id="a")
        report = MetricsReport(
            trial_id=trial.id, run_id=run.run_id, group="validation", steps_completed=3, metrics={"loss": float("nan")}
        )
        remote.report_metrics([report])
        with pytest.raises(RecordNotFound, match="experiment 99"):
            remote.experiment(99)
        assert remote.cluster_id == served_local.store.cluster_id
    (stored,) = served_local.store.metrics(trial.id)
    assert stored.steps_completed == 3 and stored.metrics["loss"] != stored.metrics["loss"]


def test_a_viewer_reads_the_store_and_changes_nothing(team: ServedSite) -> None:
    vic = team.program("vic")
    experiment = team.store.create_experiment(config={"name": "one"})
    call = {"experiment_id": experiment.id}
    assert vic.call("/api/store/experiment", call).json["returned"]["name"] == "one"
    answer = vic.call("/api/store/delete_experiment", call)
    assert answer.status == 403 and "VIEWER" in answer.json["error"] and "USER" in answer.json["error"]
    assert team.store.experiment(experiment.id)


@pytest.mark.parametrize("name", ["root", "ann", "vic"])
def test_nobody_reads_hashes_or_writes_the_audit_log(team: ServedSite, name: str) -> None:
    client = team.program(name)
    before = len(team.store.actions(limit=1000))
    calls: dict[str, dict[str, Any]] = {
        "password_hash": {"name": "root"},
        "access_token": {"digest": "0" * 64},
        "create_user": {"name": "eve", "role": "ADMIN", "password": ""},
        "edit_user": {"name": name, "role": "ADMIN"},
        "record_action": {"action": {"user": "root", "name": "x"}},
    }
    for method, arguments in calls.items():
        assert client.call(f"/api/store/{method}", arguments).status == 404, method
    for method in ("users", "actions", "access_tokens"):
        assert client.call(f"/api/store/{method}").status == (200 if name == "root" else 403), method
    assert len(team.store.actions(limit=1000)) == before


@pytest.mark.parametrize("method", ["close", "__class__", "_database", "__reduce__", "url", "nothing", "experiment "])
def test_only_methods_of_the_interface_are_called(team: ServedSite, method: str) -> None:
    assert team.program("root").call(f"/api/store/{method.replace(' ', '%20')}").status == 404


def test_records_belong_to_their_caller_and_actions_are_recorded(team: ServedSite) -> None:
    ann = team.program("ann")
    created = ann.call("/api/store/create_experiment", {"config": {"name": "x"}, "owner": "root"}).json["returned"]
    assert created["owner"] == "ann"
    ann.call("/api/store/edit_experiment", {"experiment_id": created["id"], "notes": "mine"})
    ann.call("/api/store/edit_experiment", {"experiment_id": 999, "notes": "mine"})
    ann.call("/api/store/delete_experiment", {"experiment_id": created["id"]})
    done = [(entry.user, entry.action, entry.target) for entry in team.store.actions(limit=3)]
    assert done == [
        ("ann", "delete_experiment", f"experiment {created['id']}"),
        ("ann", "edit_experiment", f"experiment {created['id']}"),
        ("ann", "create_experiment", f"experiment {created['id']}"),
    ]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b'{"experiment_id": "../../etc/passwd"}',
        b'{"experiment_id": 1, "unknown": 2}',
        b'{"experiment_id": 1e400}',
        b"[" * 100_000,
        gzip.compress(b"{}", mtime=0)[:-9],
        pickle.dumps({"experiment_id": 1}),
    ],
    ids=lambda body: body[:20].decode("latin-1"),
)
def test_malformed_calls_are_errors(local: ServedSite, body: bytes) -> None:
    answer = local.commands.request("POST", "/api/store/experiment", body)
    assert answer.status == 200 and answer.json["raised"][0] in ("TrackingError", "RecordNotFound")
    assert local.commands.get("/api/info").status == 200


@pytest.mark.parametrize(
    ("version", "side"), [("0.0.9", "the client"), ("99.1.0", "the server"), ("x", "upgrade"), ("", "upgrade")]
)
def test_incompatible_releases_are_told_which_side_to_upgrade(local: ServedSite, version: str, side: str) -> None:
    answer = local.commands.request("GET", "/api/info", headers={"det-version": version})
    assert answer.status == 426 and side in answer.json["error"]
    assert answer.headers["det-version"] == __version__
    patch = __version__.rpartition(".")[0] + ".99"
    assert local.commands.get("/api/info", det_version=patch).status == 200


def test_answers_do_not_wait_for_acknowledgements(served_local: ServedSite) -> None:
    connection = http.client.HTTPConnection(*served_local.client.address, timeout=60)
    seconds = []
    for _ in range(60):
        begin = time.perf_counter()
        connection.request("GET", "/api/info", headers=served_local.commands.headers)
        connection.getresponse().read()
        seconds.append(time.perf_counter() - begin)
    connection.close()
    assert min(seconds[20:]) < 0.03, "40 ms is the delay of an acknowledgement"


# Tokens of runs


def test_the_token_of_a_run_permits_only_what_its_workers_need(team: ServedSite) -> None:
    store = team.store
    experiment = store.create_experiment(config={"name": "x"})
    trials = [store.create_trial(experiment.id, hparams={}, seed=0) for _ in range(2)]
    for trial in trials:
        store.start_run(trial.id, allocation_id="a")
    run = {"trial_id": trials[0].id, "run_id": 1}
    answer = team.program("ann").call("/api/run_tokens", run)
    worker = team.client.with_headers(Authorization=f"Bearer {answer.json['token']}")
    assert worker.call("/api/store/set_runner_state", {**run, "status": "training"}).json == {"returned": None}
    other = {"trial_id": trials[1].id, "run_id": 1, "status": "training"}
    assert "raised" in worker.call("/api/store/set_runner_state", other).json
    for method in (
        "delete_experiment",
        "users",
        "password_hash",
        "record_action",
        "add_access_token",
        "create_experiment",
    ):
        assert "raised" in worker.call(f"/api/store/{method}", {"experiment_id": experiment.id}).json, method
    for path in ("/experiments", "/account", "/static/det.css", "/data/curves"):
        assert worker.get(path).status == 403, path
    for path in ("/api/run_tokens", "/api/experiments", f"/api/experiments/{experiment.id}/start", "/api/logout"):
        assert worker.call(path, run).status == 403, path
    assert worker.post(f"/experiments/{experiment.id}/kill").status == 403
    assert store.experiment(experiment.id)


@pytest.mark.parametrize(
    "end", ["its run ends", "another run begins", "its user is demoted", "its user leaves", "its parent is deleted"]
)
def test_the_token_of_a_run_ends_with_the_run_and_its_user(team: ServedSite, end: str) -> None:
    store = team.store
    trial = store.create_trial(store.create_experiment(config={}, owner="ann").id, hparams={}, seed=0)
    run = {"trial_id": trial.id, "run_id": store.start_run(trial.id, allocation_id="a").run_id}
    ann = team.program("ann")
    worker = team.client.with_headers(Authorization=f"Bearer {ann.call('/api/run_tokens', run).json['token']}")
    assert worker.get("/api/info").json["user"] == "ann"
    store.create_model("of root", owner="root")
    assert worker.call("/api/store/create_model", {"name": "mine", "owner": "root"}).json["returned"]["owner"] == "ann"
    refused = worker.call("/api/store/edit_model", {"name": "of root", "notes": "x"}).json["raised"]
    assert refused == [
        "TrackingError",
        f"run 1 of trial {trial.id} may call edit_model only for models of its own user",
    ]
    assert [entry.action for entry in store.actions(limit=2)] == ["create_model", "create run token"]

    actions = {
        "its run ends": lambda: store.end_run(trial.id, 1),
        "another run begins": lambda: store.start_run(trial.id, allocation_id="b"),
        "its user is demoted": lambda: store.edit_user("ann", role=Role.VIEWER),
        "its user leaves": lambda: store.edit_user("ann", active=False),
        "its parent is deleted": lambda: ann.call("/api/logout"),
    }
    actions[end]()
    is_unknown = end in ("its user leaves", "its parent is deleted")
    for method, arguments in (
        ("set_runner_state", {**run, "status": "x"}),
        ("edit_model", {"name": "mine", "notes": "x"}),
    ):
        answer = worker.call(f"/api/store/{method}", arguments)
        assert answer.status == 401 if is_unknown else "raised" in answer.json, (method, answer.text)
    assert store.model("mine").notes == ""
    assert (worker.get("/api/info").status == 200) is (end == "its user is demoted")
    if not is_unknown:
        token = team.program("root").call("/api/run_tokens", run)
        assert (token.status == 200) is (end == "its user is demoted"), token.text


def test_the_token_of_a_run_ends_with_its_experiment(team: ServedSite) -> None:
    store = team.store
    trial = store.create_trial(store.create_experiment(config={}, owner="ann").id, hparams={}, seed=0)
    store.start_run(trial.id, allocation_id="a")
    token = team.program("ann").call("/api/run_tokens", {"trial_id": trial.id, "run_id": 1}).json["token"]
    store.delete_experiment(trial.experiment_id)
    restarted = site_without_server(store, account_access).client
    answer = restarted.with_headers(Authorization=f"Bearer {token}").call("/api/store/trial", {"trial_id": trial.id})
    assert answer.status == 401, "programs repeat what is refused with 503"


def test_a_token_for_a_run_of_somebody_else_needs_an_admin(team: ServedSite) -> None:
    store = team.store
    trial = store.create_trial(store.create_experiment(config={}, owner="root").id, hparams={}, seed=0)
    store.start_run(trial.id, allocation_id="a")
    answer = team.program("ann").call("/api/run_tokens", {"trial_id": trial.id, "run_id": 1})
    assert answer.status == 403 and "trial 1 belongs to root" in answer.json["error"]


def test_a_token_for_a_run_of_somebody_else_ends_with_the_role_of_an_admin(team: ServedSite) -> None:
    store = team.store
    trial = store.create_trial(store.create_experiment(config={}, owner="ann").id, hparams={}, seed=0)
    store.start_run(trial.id, allocation_id="a")
    store.edit_user("vic", role=Role.ADMIN)
    run = {"trial_id": trial.id, "run_id": 1}
    tokens = [team.program(user).call("/api/run_tokens", run).json["token"] for user in ("ann", "vic")]
    workers = [team.client.with_headers(Authorization=f"Bearer {token}") for token in tokens]
    for role, statuses in ((Role.ADMIN, [200, 200]), (Role.USER, [200, 401])):
        store.edit_user("vic", role=role)
        assert [worker.get("/api/info").status for worker in workers] == statuses


def test_a_user_deletes_nothing_of_others(team: ServedSite) -> None:
    store, ann = team.store, team.program("ann")
    experiment = store.create_experiment(config={}, owner="root")
    trial = store.create_trial(experiment.id, hparams={}, seed=0)
    store.start_run(trial.id, allocation_id="a")
    uuid = "00000000-0000-4000-8000-000000000000"
    store.begin_checkpoint(uuid, trial_id=trial.id, run_id=1, storage={})
    store.complete_checkpoint(uuid, run_id=1, steps_completed=1, resources={}, metadata={})
    store.create_model("m", owner="root")
    for method, arguments in (
        ("delete_experiment", {"experiment_id": experiment.id}),
        ("continue_experiment", {"experiment_id": 1, "config": {}, "original_config": "", "restart_search": False}),
        ("delete_checkpoint", {"uuid": uuid}),
        ("delete_model", {"name": "m"}),
    ):
        assert ann.call(f"/api/store/{method}", arguments).json["raised"][1].endswith("needs its owner or an admin")
    assert team.log_in("ann").post(f"/checkpoints/{uuid}/delete").status == 403
    assert ann.call(f"/api/experiments/{experiment.id}/continue", {"changes": ["name=x"]}).status == 403
    assert store.experiment(experiment.id) and store.model("m") and store.checkpoint(uuid).state == "COMPLETED"
    for method, arguments in (("delete_model", {"name": "m"}), ("delete_experiment", {"experiment_id": experiment.id})):
        assert team.program("root").call(f"/api/store/{method}", arguments).json == {"returned": None}


def test_tokens_of_runs_are_for_runs_that_exist_and_people_who_may_write(team: ServedSite, local: ServedSite) -> None:
    run = {"trial_id": 1, "run_id": 1}
    assert team.program("ann").call("/api/run_tokens", run).status == 404
    assert team.program("vic").call("/api/run_tokens", run).status == 403
    assert local.commands.call("/api/run_tokens", {"trial_id": "1", "run_id": True}).status == 400


# Large calls


BOMBS: dict[str, Callable[[], bytes]] = {
    "many values": lambda: b'{"experiment_ids":[' + b"{}," * 8_000_000 + b"{}]}",
    "deep": lambda: b'{"experiment_ids":' + b"[" * 500_000 + b"]" * 500_000 + b"}",
    "one text": lambda: b'{"experiment_ids":"' + b"x" * (64 << 20) + b'"}',
    "a wrong value": lambda: b'{"experiment_ids":{"' + b"x" * 1_000_000 + b'":1}}',
}


@pytest.mark.parametrize("bomb", BOMBS)
@pytest.mark.parametrize(("method", "status"), [("experiments_by_id", 200), ("report_metrics", 403)])
@pytest.mark.integration
def test_a_small_compressed_call_of_a_viewer_takes_little_memory(
    team: ServedSite, method: str, status: int, bomb: str
) -> None:
    vic, body = team.program("vic"), gzip.compress(BOMBS[bomb](), 1)
    answer, peak = call_with_peak_memory(vic.request, "POST", f"/api/store/{method}", body)
    assert answer.status == status
    assert peak < 16 << 20, f"{peak >> 20} MiB"
    assert len(answer.body) < 1000


def test_a_small_compressed_call_of_a_run_takes_little_memory(team: ServedSite) -> None:
    """Its texts are skipped while brackets are counted, and are no more than its values."""
    store = team.store
    trial = store.create_trial(store.create_experiment(config={}, owner="ann").id, hparams={}, seed=0)
    store.start_run(trial.id, allocation_id="a")
    token = team.program("ann").call("/api/run_tokens", {"trial_id": trial.id, "run_id": 1}).json["token"]
    worker = team.client.with_headers(Authorization=f"Bearer {token}")
    body = gzip.compress(b'{"reports":' + b"[" * 101 + b'"' * (4 << 20), 1)
    answer, peak = call_with_peak_memory(worker.request, "POST", "/api/store/report_metrics", body)
    assert answer.json["raised"][0] == "TrackingError"
    assert peak < 32 << 20, f"{peak >> 20} MiB"


def test_who_writes_sends_at_most_millions_of_values(team: ServedSite) -> None:
    body = gzip.compress(b'{"reports":[' + b"{}," * 8_000_000 + b"{}]}", 1)
    answer = team.program("ann").request("POST", "/api/store/report_metrics", body)
    assert answer.json["raised"] == ["CallTooLarge", "the call has more than 2000000 values; send less in one call"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"config":[' + b"[]," * 2_000_001 + b"1]}", "more than 2000000 values"),
        (b'{"config":' + b"[" * 101 + b"]" * 101 + b"}", "more than 100 levels"),
        # Half of a character looks like a quotation mark, so that the brackets look like text.
        (f'{{"":"\u2200","config":{"[" * 101}{"]" * 101},"x":"\u2200"}}'.encode("utf-16-le"), "cannot be read as JSON"),
    ],
    ids=["many values", "deep", "deep in UTF-16"],
)
def test_a_submission_has_as_few_values_as_a_call(team: ServedSite, body: bytes, reason: str) -> None:
    answer = team.program("ann").request("POST", "/api/experiments", body)
    assert answer.status == 400 and reason in answer.json["error"]


def test_a_call_that_is_nested_too_deep_is_not_recorded(team: ServedSite) -> None:
    ann = team.program("ann")
    for levels in (95, 150):
        body = b'{"config":' + b'{"[":' * levels + b"1" + b"}" * levels + b"}"
        answer = ann.request("POST", "/api/store/create_experiment", body).json
        assert ("raised" in answer) is (levels == 150), answer


def test_a_run_that_has_ended_has_nothing_decoded(team: ServedSite) -> None:
    store = team.store
    trial = store.create_trial(store.create_experiment(config={}, owner="ann").id, hparams={}, seed=0)
    store.start_run(trial.id, allocation_id="a")
    token = team.program("ann").call("/api/run_tokens", {"trial_id": trial.id, "run_id": 1}).json["token"]
    store.end_run(trial.id, 1)
    worker = team.client.with_headers(Authorization=f"Bearer {token}")
    assert worker.request("POST", "/api/store/report_metrics", b"nothing").json["raised"][0] == "StaleRun"


@pytest.mark.parametrize("place", ["header", "body"])
def test_a_remembered_answer_is_for_its_caller(team: ServedSite, place: str) -> None:
    call_id = f"{'a' * 32}-1"
    headers, prefix = ({"det-call-id": call_id}, "") if place == "header" else ({}, f"{call_id}\n")

    def call(user: str, method: str, name: str) -> Any:
        body = (prefix + json.dumps({"name": name})).encode()
        return programs[user].request("POST", f"/api/store/{method}", body, headers).json

    programs = {name: team.program(name) for name in ("ann", "root", "vic")}
    assert call("ann", "create_model", "a secret")["returned"]["name"] == "a secret"
    assert call("root", "create_model", "b")["returned"]["owner"] == "root"
    assert call("vic", "model", "a secret")["returned"]["owner"] == "ann"
    assert call("ann", "create_model", "c")["returned"]["name"] == "a secret"


def test_an_external_id_of_somebody_else_is_taken(team: ServedSite) -> None:
    team.store.create_experiment(config={}, owner="root", external_id="nightly")
    answer = team.program("ann").call("/api/store/create_experiment", {"config": {}, "external_id": "nightly"})
    assert answer.json["raised"] == ["RecordExists", "the external id 'nightly' is that of an experiment of root"]


def test_a_viewer_sends_no_large_body(team: ServedSite) -> None:
    headers = {"Content-Length": str(2 << 20)}
    answer = team.program("vic").request("POST", "/api/store/create_experiment", b"", headers)
    assert answer.status == 403 and "expected at most 1048576" in answer.json["error"]


# No requests in the name of clients


@pytest.mark.parametrize(
    "url",
    ["http://169.254.169.254/latest/meta-data", "http://127.0.0.1:{port}/hook", "file:///etc/passwd", "gopher://x"],
)
def test_the_server_fetches_no_urls(local: ServedSite, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    import socket

    connected: list[object] = []
    connect = socket.socket.connect

    def note(self: socket.socket, address: Any) -> None:
        if address != local.client.address:
            connected.append(address)
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", note)
    owner = local.owner
    target = url.format(port=1)
    for path in ("/experiments?name=", "/login?next=", "/compare?trials=", "/data/curves?trials="):
        owner.get(f"{path}{target}")
    owner.post("/models", {"name": "m", "checkpoint": target, "description": target})
    local.commands.call("/api/store/edit_experiment", {"experiment_id": 1, "notes": target})
    local.commands.call("/api/experiments", {"config": target, "code": target})
    assert connected == []


def test_nothing_is_unpickled_when_records_are_read(local: ServedSite, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("something was unpickled")

    store = local.store
    evil = base64.b64encode(pickle.dumps(_Evil())).decode()
    experiment = store.create_experiment(
        config={"name": evil, "hyperparameters": {"a": {"type": "const", "val": evil}}},
        model_definition=pickle.dumps(_Evil()),
    )
    trial = store.create_trial(experiment.id, hparams={"a": evil}, seed=0)
    store.start_run(trial.id, allocation_id="a")
    store.begin_checkpoint(
        "c", trial_id=trial.id, run_id=1, storage={"type": "directory", "container_path": "/nowhere"}
    )
    store.complete_checkpoint("c", run_id=1, steps_completed=1, resources={"m.pkl": 3}, metadata={"state": evil})
    for name in ("loads", "load", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    owner = local.owner
    pages = (
        "/experiments",
        f"/experiments/{experiment.id}",
        f"/experiments/{experiment.id}/code",
        f"/trials/{trial.id}",
    )
    for page in (*pages, "/models", f"/compare?trials={trial.id}"):
        assert owner.get(page).status in (200, 400), page
    for method, arguments in (("checkpoint", {"uuid": "c"}), ("model_definition", {"experiment_id": experiment.id})):
        assert "returned" in local.commands.call(f"/api/store/{method}", arguments).json


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        raise_error: Any = exec
        return raise_error, ("raise AssertionError('unpickled')",)


def test_a_client_reports_what_a_server_refuses(store: TrackingStore, quick_passwords: None) -> None:
    with served(store, account_access) as site:
        site.add_user("vic", Role.VIEWER)
        token = site.program("vic").headers["Authorization"].removeprefix("Bearer ")
        with open_store(f"{site.site.url}/?token={token}") as remote, pytest.raises(TrackingError, match="VIEWER"):
            remote.create_experiment(config={"name": "x"})
