"""Tests of the API: calls of the store, submissions, and the limits of tokens."""

from __future__ import annotations

import base64
import gzip
import http.client
import io
import json
import pickle
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from det_core.errors import RecordNotFound, TrackingError
from det_core.interfaces.records import MetricsReport, State
from det_core.interfaces.tracking import TrackingStore
from det_core.launch.context_archive import pack_context_dir
from det_core.tracking import open_store
from det_core.version import __version__

from .serving import Client, ServedSite, wait_for

TRAIN = """
import det_core as det
with det.core.init() as context:
    context.train.report_validation_metrics(steps_completed=1, metrics={"loss": 0.5})
    for operation in context.searcher.operations():
        operation.report_completed(0.5)
"""
SECRET = "hunter2hunter2"


def submission(directory: Path, code: str = TRAIN, **changes: Any) -> dict[str, Any]:
    """Return the body that submits an experiment with one file of code."""
    directory.mkdir(exist_ok=True)
    (directory / "train.py").write_text(code)
    config = {
        "name": "submitted",
        "entrypoint": "python3 train.py",
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
        "max_restarts": 0,
        **changes,
    }
    code_archive = base64.b64encode(pack_context_dir(directory)).decode()
    return {"config": config, "original_config": json.dumps(config), "code": code_archive}


def ended(store: TrackingStore, experiment_id: int) -> State:
    """Return the state in which an experiment ends."""
    wait_for(lambda: store.experiment(experiment_id).state.final and not store.lease_holder(experiment_id))
    return store.experiment(experiment_id).state


def test_info(local: ServedSite, team: ServedSite) -> None:
    answer = local.commands.get("/api/info")
    assert answer.json == {
        "version": __version__,
        "cluster_id": local.store.cluster_id,
        "user": local.site.access._user.name,  # type: ignore[attr-defined]
        "role": "ADMIN",
    }
    assert team.program("vic").get("/api/info").json["role"] == "VIEWER"


# Calls of the store


def test_a_store_is_used_through_a_server(local: ServedSite) -> None:
    link = f"{local.site.url}/?token={local.site.access.link_token}"  # type: ignore[attr-defined]
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
        assert remote.cluster_id == local.store.cluster_id
    (stored,) = local.store.metrics(trial.id)
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
        "record_action": {"user": "root", "action": "x", "target": "y"},
    }
    for method, arguments in calls.items():
        assert client.call(f"/api/store/{method}", arguments).status == 403, method
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
    done = [(entry.user, entry.action, entry.target) for entry in team.store.actions(limit=2)]
    assert done == [
        ("ann", "delete_experiment", f"experiment_id {created['id']}"),
        ("ann", "edit_experiment", f"experiment_id {created['id']}"),
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
        gzip.compress(b" " * (300 << 20)),
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


def test_answers_do_not_wait_for_acknowledgements(local: ServedSite) -> None:
    connection = http.client.HTTPConnection(*local.client.address, timeout=60)
    seconds = []
    for _ in range(60):
        begin = time.perf_counter()
        connection.request("GET", "/api/info", headers=local.commands.headers)
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


def test_tokens_of_runs_are_for_runs_that_exist_and_people_who_may_write(team: ServedSite, local: ServedSite) -> None:
    run = {"trial_id": 1, "run_id": 1}
    assert team.program("ann").call("/api/run_tokens", run).status == 404
    assert team.program("vic").call("/api/run_tokens", run).status == 403
    assert local.commands.call("/api/run_tokens", {"trial_id": "1", "run_id": True}).status == 400


# Submissions


@pytest.mark.integration
def test_a_submitted_experiment_is_trained_by_the_server(team: ServedSite, tmp_path: Path) -> None:
    body = {**submission(tmp_path / "code"), "external_id": "0" * 32}
    answer = team.program("ann").call("/api/experiments", body)
    assert answer.status == 200, answer.text
    experiment_id = answer.json["id"]
    assert team.program("ann").call("/api/experiments", body).json["id"] == experiment_id, "a repeated request"
    assert ended(team.store, experiment_id) is State.COMPLETED
    experiment = team.store.experiment(experiment_id)
    assert experiment.owner == "ann"
    assert ("ann", "create", f"experiment {experiment_id}") in [
        (entry.user, entry.action, entry.target) for entry in team.store.actions()
    ]
    assert team.program("ann").call(f"/api/experiments/{experiment_id}/start").status == 400, "it has completed"
    assert team.program("ann").call("/api/experiments/99/start").status == 404


@pytest.mark.integration
def test_secrets_of_a_submission_are_in_private_files_only(local: ServedSite, tmp_path: Path, det_home: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    variables: dict[str, Any] = {"environment": {"environment_variables": [f"API_KEY={SECRET}"]}}
    (code / "const.yaml").write_text(json.dumps(variables))
    answer = local.commands.call("/api/experiments", submission(code, **variables))
    assert answer.status == 200, answer.text
    experiment_id = answer.json["id"]
    ended(local.store, experiment_id)
    experiment = local.store.experiment(experiment_id)
    assert SECRET not in json.dumps(experiment.config) + experiment.original_config
    with tarfile.open(fileobj=io.BytesIO(local.store.model_definition(experiment_id))) as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member)
            assert file and SECRET.encode() not in file.read()
    secret_files = [path for path in det_home.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert [path.parent.name for path in secret_files] == ["secrets"]
    for page in (f"/experiments/{experiment_id}", f"/experiments/{experiment_id}/code"):
        answer = local.owner.get(page)
        assert answer.status == 200 and SECRET not in answer.text and "det-secret:" not in answer.text, page
    for path in det_home.rglob("*"):
        if path.is_dir() and path.parent in (det_home, det_home / "server"):
            assert path.stat().st_mode & 0o777 == 0o700, path


def _archive(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> str:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        member = tarfile.TarInfo(name)
        member.type, member.linkname, member.size = kind, link, 0
        archive.addfile(member)
    return base64.b64encode(buffer.getvalue()).decode()


@pytest.mark.parametrize(
    "code",
    [
        _archive("../outside.py"),
        _archive("/tmp/outside.py"),
        _archive("a/../../outside.py"),
        _archive("link", tarfile.SYMTYPE, "/etc/passwd"),
        _archive("link", tarfile.LNKTYPE, "/etc/passwd"),
        _archive("device", tarfile.CHRTYPE),
        base64.b64encode(gzip.compress(b"\0" * (193 << 20), 1)).decode(),
        base64.b64encode(pickle.dumps("x")).decode(),
        "not base64!",
        "",
    ],
    ids=lambda code: code[:12],
)
def test_hostile_archives_are_refused_and_leave_nothing(
    local: ServedSite, tmp_path: Path, det_home: Path, code: str
) -> None:
    body = {**submission(tmp_path / "code"), "code": code}
    answer = local.commands.call("/api/experiments", body)
    assert answer.status == 400 and answer.json["error"]
    assert local.store.experiments() == []
    left = [path for path in (det_home / "server").rglob("*") if path.name not in ("key",)]
    assert left == []
    assert not (tmp_path / "outside.py").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"config": None}, "config"),
        ({"config": []}, "config"),
        ({"config": {}}, "searcher"),
        ({"config": {"entrypoint": "python3 train.py", "seracher": {}}}, "seracher"),
        ({"code": 5}, "code"),
        ({"original_config": {}}, "original_config"),
    ],
    ids=str,
)
def test_wrong_submissions_say_what_is_wrong(
    local: ServedSite, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    answer = local.commands.call("/api/experiments", {**submission(tmp_path / "code"), **change})
    assert answer.status == 400 and message in answer.json["error"]


@pytest.mark.parametrize("path", ["/api/experiments", "/api/experiments/1/start", "/api/experiments/1/continue"])
def test_a_viewer_starts_nothing(team: ServedSite, tmp_path: Path, path: str) -> None:
    assert team.program("vic").call(path, submission(tmp_path / "code")).status == 403


def _running(store: TrackingStore) -> int:
    experiment = store.create_experiment(config={"name": "x"})
    store.acquire_lease(experiment.id, "elsewhere:1:1:x", seconds=600, state=State.ACTIVE)
    return experiment.id


def test_an_experiment_with_a_runner_is_not_started_again(local: ServedSite) -> None:
    answer = local.commands.call(f"/api/experiments/{_running(local.store)}/start")
    assert answer.status == 409 and "elsewhere" in answer.json["error"]


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


def test_a_client_reports_what_a_server_refuses(team: ServedSite) -> None:
    client: Client = team.program("vic")
    token = client.headers["Authorization"].removeprefix("Bearer ")
    with open_store(f"{team.site.url}/?token={token}") as remote, pytest.raises(TrackingError, match="VIEWER"):
        remote.create_experiment(config={"name": "x"})
