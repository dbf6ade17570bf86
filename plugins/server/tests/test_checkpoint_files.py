"""Files of checkpoints, which the server reads for clients that cannot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from http.client import HTTPConnection, IncompleteRead
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from det_server import _admitted_sending, _download_log
from det_server._threads import Threads, Work
from det_server.api import _deletions
from det_server.api._checkpoint_files import MAX_DOWNLOADS_PER_PERSON
from det_server.api._deletions import MAX_DELETIONS_PER_PERSON

from det_core import runner, storage
from det_core.cli import main
from det_core.core import open_storage_block
from det_core.core.checkpoint_removal import remove_checkpoint
from det_core.errors import StorageError
from det_core.home import private_directory
from det_core.interfaces.records import CheckpointRecord, CheckpointState, State
from det_core.interfaces.secrets import REFERENCE_PREFIX
from det_core.interfaces.tracking import TrackingStore
from det_core.storage.directory import DirectoryStorage
from det_core.tracking import open_store
from det_core.tracking.secret_files import write_secret

from .serving import LIMIT, Client, ServedSite, wait_for

UUID = "00000000-0000-4000-8000-000000000001"
HIDE = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"']
"""Command that hides a directory from another one, as if the other ran on another machine."""


@pytest.fixture
def stored(store: TrackingStore, tmp_path: Path) -> Path:
    """Record a checkpoint in a storage, and return the directory of the storage."""
    files = tmp_path / "files"
    (files / "sub").mkdir(parents=True)
    (files / "model.pth").write_bytes(os.urandom(3 << 20))
    (files / "sub" / "empty").touch()
    block = {"type": "shared_fs", "host_path": str(tmp_path / "storage")}
    (tmp_path / "storage").mkdir()
    experiment = store.create_experiment(config={"name": "x", "checkpoint_storage": block}).id
    run = store.start_run(store.create_trial(experiment, hparams={}, seed=0).id, allocation_id="a")
    store.begin_checkpoint(UUID, trial_id=run.trial_id, run_id=run.run_id, storage=block)
    resources = storage.save_checkpoint(open_storage_block(block), UUID, storage.scan_directory(files), {"a": 1})
    store.complete_checkpoint(UUID, run_id=run.run_id, steps_completed=1, resources=resources, metadata={"a": 1})
    return tmp_path / "storage"


Elsewhere = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def elsewhere(served_team: ServedSite, stored: Path, tmp_path: Path) -> Elsewhere:
    """Return a function that runs a command of a user as if on a machine that does not have the storage."""

    def run(user: str, *words: str) -> subprocess.CompletedProcess[str]:
        token = served_team.program(user).headers["Authorization"].partition(" ")[2]
        variables = {"DET_HOME": str(tmp_path / "laptop"), "DET_MASTER": served_team.site.url, "DET_TOKEN": token}
        return subprocess.run(
            [*HIDE, str(stored), sys.executable, "-m", "det_core.cli", *words],
            env={**os.environ, **variables},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )

    return run


@pytest.mark.integration
def test_files_reach_a_machine_that_cannot_read_the_storage(
    served_team: ServedSite, elsewhere: Elsewhere, tmp_path: Path
) -> None:
    ended = elsewhere("vic", "checkpoint", "download", UUID, "-o", "got")
    assert ended.returncode == 0, ended.stderr
    assert f"{served_team.site.url} reads checkpoint {UUID}, because this machine cannot" in ended.stderr
    got = tmp_path / "got"
    assert (got / "model.pth").read_bytes() == (tmp_path / "files" / "model.pth").read_bytes()
    assert (got / "sub" / "empty").read_bytes() == b""
    entries = [(one.user, one.action, one.target) for one in served_team.site.store.actions()]
    assert entries.count(("vic", "download", f"checkpoint {UUID}")) == 1


def assert_place(described: str, path: str, machine: str | None) -> None:
    shown = json.loads(described)
    assert (shown["path"], shown["machine"]) == (path, machine)


@pytest.mark.integration
def test_a_path_says_whose_it_is(
    served_team: ServedSite,
    stored: Path,
    elsewhere: Elsewhere,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path, url = str(stored / UUID), served_team.site.url
    token = served_team.program("ann").headers["Authorization"].partition(" ")[2]
    describe = ["checkpoint", "describe", UUID, "--json"]

    monkeypatch.setenv("DET_MASTER", url)
    monkeypatch.setenv("DET_TOKEN", token)

    def place(store: str) -> str:
        assert main(["-m", store, *describe]) == 0
        return capsys.readouterr().out

    assert_place(elsewhere("vic", *describe).stdout, path, url)
    assert_place(place(url), path, "this machine")
    (stored / UUID).rename(stored / "moved")
    assert_place(place(url), path, "another machine")
    assert_place(place(served_team.store.url), path, None)
    with open_store(f"{url}/?token={token}") as far:
        with pytest.raises(StorageError, match=f"this machine: .* has no files here.*{url}: .* has no files here"):
            remove_checkpoint(far, far.checkpoint(UUID), on_deleted=lambda _: None)
        assert far.checkpoint(UUID).state is CheckpointState.COMPLETED


@pytest.mark.integration
def test_a_server_deletes_what_only_it_has(
    served_team: ServedSite, stored: Path, elsewhere: Elsewhere, tmp_path: Path
) -> None:
    store = served_team.store
    tensorboard = stored / store.cluster_id / "tensorboard" / "experiment" / "1"
    tensorboard.mkdir(parents=True)
    (tensorboard / "events").write_text("")
    ended = elsewhere("vic", "checkpoint", "rm", UUID, "--yes")
    assert (ended.returncode, "role VIEWER" in ended.stderr) == (1, True), ended.stderr
    assert (stored / UUID / "model.pth").exists()
    ended = elsewhere("ann", "checkpoint", "rm", UUID, "--glob", "*.pth", "--yes")
    assert ended.returncode == 0, ended.stderr
    assert sorted(path.name for path in (stored / UUID).iterdir()) == ["metadata.json", "sub"]
    assert store.checkpoint(UUID).state is CheckpointState.PARTIALLY_DELETED
    ended = elsewhere("ann", "experiment", "delete", "1", "--yes")
    assert (ended.returncode, ended.stdout) == (0, "Deleted experiment 1 with 1 checkpoint\n"), ended.stderr
    assert not list(stored.rglob("*"))
    assert store.experiments() == []
    entries = [(one.user, one.action, one.target) for one in store.actions()]
    assert ("ann", "delete", f"checkpoint {UUID}") in entries
    assert ("ann", "delete", "TensorBoard files of experiment 1") in entries


def test_records_stay_until_a_machine_has_the_files(local: ServedSite, stored: Path) -> None:
    (away := stored.with_name("of-another-machine")).mkdir()
    (stored / UUID).rename(away / UUID)
    for path in (f"/api/checkpoints/{UUID}/delete", f"/checkpoints/{UUID}/delete"):
        answer = local.commands.call(path) if path.startswith("/api") else local.owner.post(path)
        assert (answer.status, "has no files here in" in answer.text) == (400, True)
    assert local.store.checkpoint(UUID).state is CheckpointState.COMPLETED
    (away / UUID).rename(stored / UUID)
    for _ in range(2):  # a client repeats a request whose answer was lost
        assert local.commands.call(f"/api/checkpoints/{UUID}/delete").json == {"done": True, "left": {}}
    assert local.store.checkpoint(UUID).state is CheckpointState.DELETED
    assert not (stored / UUID).exists()


def test_a_deletion_needs_its_owner_and_no_version_of_a_model(team: ServedSite, stored: Path) -> None:
    store = team.store
    owned = store.create_experiment(config={"name": "y"}, owner="root")
    trial = store.create_trial(owned.id, hparams={}, seed=0).id
    store.begin_checkpoint("c1", trial_id=trial, run_id=store.start_run(trial, allocation_id="a").run_id, storage={})
    assert team.program("ann").call("/api/checkpoints/c1/delete").status == 403
    assert team.program("ann").call(f"/api/experiments/{owned.id}/tensorboard/delete").status == 403
    store.add_model_version(store.create_model("m").id, UUID)
    assert team.program("ann").call(f"/api/checkpoints/{UUID}/delete").status == 400
    assert (stored / UUID / "model.pth").exists()
    assert team.program("ann").call("/api/checkpoints/unknown/delete").status == 404
    for name, status in (("ann", 400), ("vic", 403)):  # before the body is parsed
        assert team.program(name).call(f"/api/checkpoints/{UUID}/delete", {"globs": "all"}).status == status


def test_a_program_deletes_no_checkpoint_that_is_needed(team: ServedSite, stored: Path) -> None:
    store, program = team.store, team.program("ann")

    def refusal(lease: str = "") -> str:
        answer = program.call(f"/api/checkpoints/{UUID}/delete", {"lease": lease})
        return str(answer.json["error"]) if answer.status == 400 else f"{answer.status}"

    store.acquire_lease(1, "runner", seconds=60)
    assert "is the latest of trial 1, which is running" in refusal()
    assert "is the latest of trial 1, which is running" in refusal("another")
    searcher = {"source_checkpoint_uuid": UUID}
    other = store.create_experiment(config={"name": "y", "searcher": searcher}, owner="root").id
    assert f"is needed by experiment {other}, which starts from it" in refusal("runner")
    assert store.checkpoint(UUID).state is CheckpointState.COMPLETED and (stored / UUID / "model.pth").exists()
    assert "delete" not in [entry.action for entry in store.actions()]
    store.set_experiment_state(other, State.COMPLETED)
    assert refusal("runner") == "200"
    assert not (stored / UUID).exists()


@pytest.mark.parametrize("path", [f"/api/checkpoints/{UUID}/delete", "/api/experiments/1/tensorboard/delete"])
def test_a_deletion_that_waited_while_its_sender_lost_rights_deletes_nothing(
    team: ServedSite, stored: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    (events := stored / team.store.cluster_id / "tensorboard" / "experiment" / "1").mkdir(parents=True)
    ann, run = team.program("ann"), Threads.run

    async def run_late(self: Threads, work: Work, *called: Any, **options: Any) -> Any:
        if work is Work.DELETIONS:
            team.store.edit_user("ann", active=False)
        return await run(self, work, *called, **options)

    monkeypatch.setattr(Threads, "run", run_late)
    assert ann.call(path).status == 401
    assert (stored / UUID / "model.pth").exists() and events.exists()
    assert [action.action for action in team.store.actions()] == ["login"]


def test_a_malformed_pattern_deletes_and_changes_nothing(local: ServedSite, stored: Path) -> None:
    assert local.commands.call(f"/api/checkpoints/{UUID}/delete", {"globs": ["*", "[z-a]"]}).status == 400
    assert local.store.checkpoint(UUID).state is CheckpointState.COMPLETED


def test_a_deletion_that_fails_says_what_is_left_and_can_be_repeated(
    local: ServedSite, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(DirectoryStorage, "delete", _delete_one)
        answer = local.commands.call(f"/api/checkpoints/{UUID}/delete")
    assert (answer.status, answer.json["error"]) == (
        400,
        f"disk failed; checkpoint {UUID} still has model.pth, sub/empty, so repeat the deletion",
    )
    assert local.commands.call(f"/api/checkpoints/{UUID}/delete").json == {"done": True, "left": {}}
    assert not (stored / UUID).exists()


def _delete_one(storage: DirectoryStorage, storage_id: str, paths: Sequence[str]) -> None:
    (storage.local_path(storage_id) / paths[0]).unlink()
    raise StorageError("disk failed")


@pytest.mark.integration
def test_a_deletion_goes_on_after_its_answer(
    served_local: ServedSite, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, begun = threading.Event(), []
    whole = DirectoryStorage.delete

    def delete(*arguments: Any) -> None:
        begun.append(arguments)
        assert release.wait(LIMIT)
        whole(*arguments)

    monkeypatch.setattr(DirectoryStorage, "delete", delete)
    monkeypatch.setattr(_deletions, "_ANSWER_SECONDS", 0.1)
    path = f"/api/checkpoints/{UUID}/delete"
    for _ in range(2):
        assert served_local.commands.call(path).json == {"done": False, "left": {}}
    assert len(begun) == 1
    release.set()
    assert wait_for(lambda: served_local.commands.call(path).json["done"])
    assert not (stored / UUID).exists()


@pytest.mark.integration
def test_slow_deletions_of_one_person_leave_those_of_others_their_threads(
    served_team: ServedSite, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, path = threading.Event(), f"/api/checkpoints/{UUID}/delete"
    whole = runner.remove_checkpoint

    def remove(store: TrackingStore, checkpoint: CheckpointRecord, globs: Sequence[str], **options: Any) -> Any:
        assert not globs or release.wait(LIMIT)
        return whole(store, checkpoint, globs, **options)

    monkeypatch.setattr(runner, "remove_checkpoint", remove)
    monkeypatch.setattr(_deletions, "_ANSWER_SECONDS", 0.1)
    ann, root = served_team.program("ann"), served_team.program("root")
    for number in range(MAX_DELETIONS_PER_PERSON):
        assert ann.call(path, {"globs": [f"slow{number}"]}).json == {"done": False, "left": {}}
    refused = ann.call(path, {"globs": ["slow"]})
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert ann.call(path, {"globs": ["slow0"]}).status == 200  # waits for the one that is under way
    assert wait_for(lambda: root.call(path).json["done"])
    release.set()


def ask(client: Client, number: object = "", **headers: str) -> tuple[int, bytes]:
    answer = client.get(f"/api/checkpoints/{UUID}/files{f'/{number}' if number != '' else ''}", **headers)
    return answer.status, answer.body


def test_a_part_of_a_file_is_sent(local: ServedSite, stored: Path) -> None:
    names = sorted(local.commands.get(f"/api/checkpoints/{UUID}/files").json)
    number = names.index("model.pth")
    content = (stored / UUID / "model.pth").read_bytes()
    assert ask(local.commands, number) == (200, content)
    assert ask(local.commands, number, Range=f"bytes={len(content) - 5}-") == (206, content[-5:])
    assert ask(local.commands, len(names))[0] == 404


def test_what_is_no_file_is_not_found(local: ServedSite, stored: Path) -> None:
    directory = stored / UUID
    (directory / "empty").mkdir()
    os.mkfifo(directory / "pipe")
    (directory / "nowhere").symlink_to("nothing")
    (directory / "outside").symlink_to("/etc")
    (directory / "loop").symlink_to("loop")
    (directory / "same").symlink_to("sub/empty")
    names = sorted(local.commands.get(f"/api/checkpoints/{UUID}/files").json)
    for name in ("empty/", "pipe", "nowhere", "outside", "loop"):
        assert ask(local.commands, names.index(name))[0] == 404
    assert ask(local.commands, names.index("same")) == (200, b"")


@pytest.mark.integration
def test_repeated_downloads_of_a_person_are_one_entry_an_hour(
    team: ServedSite, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a viewer could fill the audit log, and with it the disk."""

    def entries() -> list[tuple[str, str]]:
        return [(one.user, one.target) for one in team.store.actions() if one.action == "download"]

    vic, ann = team.program("vic"), team.program("ann")
    assert {ask(one, number)[0] for one in (vic, ann, vic) for number in (0, 1)} == {200}
    assert sorted(entries()) == [("ann", f"checkpoint {UUID}"), ("vic", f"checkpoint {UUID}")]
    assert ask(vic, 10_000)[0] == 404
    monkeypatch.setattr(_download_log, "ENTRY_SECONDS", 0)
    assert ask(vic, 0)[0] == 200
    assert sorted(entries())[1:] == [("vic", f"checkpoint {UUID}")] * 2


def test_a_download_waits_for_its_own_entry_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry is a write, which waits for those of others."""
    log, begun, free, written = _download_log.DownloadLog(), threading.Event(), threading.Event(), list[str]()

    def write(request: Any, action: str, target: str) -> None:
        if request.state.principal.name == "vic":
            begun.set()
            assert free.wait(10)
        written.append(request.state.principal.name)

    def download(name: str) -> None:
        log.record(cast("Any", SimpleNamespace(state=SimpleNamespace(principal=SimpleNamespace(name=name)))), UUID)

    monkeypatch.setattr(_download_log, "record_action", write)
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(download, "vic") for _ in range(2)]
        assert begun.wait(LIMIT)
        download("ann")
        download("ann")
        assert not any(one.done() for one in waiting)
        free.set()
        for one in waiting:
            one.result(LIMIT)
    assert written == ["ann", "vic"]


@pytest.mark.parametrize("replaced", ["model.pth", "sub"])
def test_a_link_that_takes_the_place_of_a_checked_file_is_not_followed(
    local: ServedSite, stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: str
) -> None:
    """Workers on other hosts may write to the storage, and read nothing else of the server."""
    path, run = stored / UUID / replaced, Threads.run
    name = "sub/empty" if path.is_dir() else replaced
    content, secret = (path.parent / name).read_bytes(), tmp_path / "secret"
    if path.is_dir():
        secret.mkdir()
    (secret / "empty" if path.is_dir() else secret).write_bytes(b"of the server")

    async def replace_meanwhile(self: Threads, work: Work, *called: Any, **options: Any) -> Any:
        answer = await run(self, work, *called, **options)
        if work is Work.DOWNLOADS:
            path.rename(tmp_path / "original")
            path.symlink_to(secret)
        return answer

    number = sorted(local.commands.get(f"/api/checkpoints/{UUID}/files").json).index(name)
    monkeypatch.setattr(Threads, "run", replace_meanwhile)
    assert ask(local.commands, number) == (200, content)
    monkeypatch.undo()
    assert ask(local.commands, number)[0] == 404


def test_only_complete_checkpoints_are_served(local: ServedSite, stored: Path) -> None:
    """Records may name any directory of the server."""
    assert local.client.get(f"/api/checkpoints/{UUID}/files").status == 401
    (stored / UUID / "secret").symlink_to("/etc/passwd")
    names = sorted(local.commands.get(f"/api/checkpoints/{UUID}/files").json)
    status, body = ask(local.commands, names.index("secret"))
    assert status != 200 and b"root:" not in body
    (stored / UUID / "metadata.json").unlink()
    assert ask(local.commands)[0] == 404
    assert ask(local.commands, 0)[0] == 404
    for path in ("unknown/files", "..%2f..%2fetc/files", f"{UUID}/files/-1", f"{UUID}/files/x"):
        assert local.commands.get(f"/api/checkpoints/{path}").status == 404


def test_the_storage_that_a_worker_records_is_not_opened(local: ServedSite) -> None:
    """It may be another host, or a place whose name is the secret of somebody else."""
    write_secret(private_directory("secrets") / ("0" * 32), "the-secret")
    block = {"type": "shared_fs", "host_path": f"{REFERENCE_PREFIX}{'0' * 32}"}
    store = local.store
    trial = store.create_trial(store.create_experiment(config={"name": "x"}).id, hparams={}, seed=0).id
    store.begin_checkpoint(UUID, trial_id=trial, run_id=store.start_run(trial, allocation_id="a").run_id, storage=block)
    status, body = ask(local.commands)
    assert b"the-secret" not in body
    assert status == 404


@pytest.mark.integration
def test_a_person_who_reads_slowly_leaves_downloads_to_others(served_team: ServedSite, stored: Path) -> None:
    with (stored / UUID / "large").open("wb") as file:
        file.truncate(1 << 30)  # more than the buffers of a connection hold
    vic, ann = served_team.program("vic"), served_team.program("ann")
    number = sorted(vic.get(f"/api/checkpoints/{UUID}/files").json).index("large")
    with ExitStack() as unread:
        for _ in range(MAX_DOWNLOADS_PER_PERSON):
            unread.enter_context(vic.stream(f"/api/checkpoints/{UUID}/files/{number}"))
        assert ask(vic, number, Range="bytes=0-0")[0] == 503
        assert ask(ann, number, Range="bytes=0-0") == (206, b"\0")
    assert wait_for(lambda: ask(vic, number, Range="bytes=0-0")[0] == 206)


@pytest.mark.parametrize("kind", ["file", "code"])
@pytest.mark.integration
def test_a_download_ends_with_the_rights_of_its_person(
    served_team: ServedSite, stored: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(_admitted_sending, "ADMISSION_SECONDS", 0)
    with (stored / UUID / "large").open("wb") as file:
        file.truncate(1 << 30)  # more than the buffers of a connection hold
    vic = served_team.program("vic")
    number = sorted(vic.get(f"/api/checkpoints/{UUID}/files").json).index("large")
    path = f"/api/checkpoints/{UUID}/files/{number}"
    if kind == "code":
        code = bytes(64 << 20)
        path = f"/experiments/{served_team.store.create_experiment(config={}, model_definition=code).id}/code.tar.gz"
    connection = HTTPConnection(*vic.address, timeout=LIMIT)
    with closing(connection):
        connection.request("GET", path, headers=vic.headers)
        response = connection.getresponse()
        assert response.read(1 << 20) == bytes(1 << 20)
        served_team.site.store.edit_user("vic", active=False)
        with pytest.raises(IncompleteRead):
            response.read()
