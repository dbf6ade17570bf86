"""Tests of the submission of experiments."""

from __future__ import annotations

import base64
import gzip
import io
import json
import pickle
import tarfile
from pathlib import Path
from typing import Any

import pytest

from det_core.interfaces.records import State
from det_core.interfaces.secrets import Secret
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking.secret_files import extract_secrets

from .serving import ServedSite
from .submitting import SECRET, ended, submission


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
    assert {path.parent.name for path in secret_files} == {"secrets"}
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
        base64.b64encode(gzip.compress(b"no archive")).decode(),
        base64.b64encode(pickle.dumps("x")).decode(),
        "not base64!",
        "",
    ],
    ids=lambda code: code[:4],  # the time comes next
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


def test_a_reference_to_a_secret_of_another_block_is_refused(local: ServedSite, tmp_path: Path) -> None:
    code = tmp_path / "code"
    secret = extract_secrets({"data": {"password": Secret(SECRET)}})["data"]["password"]
    for text, status in ((secret, 400), (SECRET, 200)):
        answer = local.commands.call("/api/experiments", submission(code, data={"password": text, "host": "other"}))
        assert answer.status == status, answer.text
        assert status == 200 or answer.json["error"].startswith("data.password: this server has no secret for that.")
        assert SECRET not in answer.text and "/secrets" not in answer.text


@pytest.mark.parametrize("path", ["/api/experiments", "/api/experiments/1/start", "/api/experiments/1/continue"])
def test_a_viewer_starts_nothing(team: ServedSite, tmp_path: Path, path: str) -> None:
    assert team.program("vic").call(path, submission(tmp_path / "code")).status == 403


@pytest.mark.parametrize(("changes", "status"), [(["a=1", 5], 400), (["searcher.max_length=200"], 404), ([], 404)])
def test_changes_are_a_list_of_texts(local: ServedSite, changes: list[Any], status: int) -> None:
    answer = local.commands.call("/api/experiments/99/continue", {"changes": changes})
    assert answer.status == status
    assert status == 404 or "expected a list of texts" in answer.json["error"]


def _running(store: TrackingStore) -> int:
    experiment = store.create_experiment(config={"name": "x"})
    store.acquire_lease(experiment.id, "elsewhere:1:1:x", seconds=600, state=State.ACTIVE)
    return experiment.id


def test_an_experiment_with_a_runner_is_not_started_again(local: ServedSite) -> None:
    answer = local.commands.call(f"/api/experiments/{_running(local.store)}/start")
    assert answer.status == 409 and "elsewhere" in answer.json["error"]
