"""Tests of the forms on pages."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape, unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from det_server._runner_keeper import RunnerKeeper

from det_core.home import default_storage
from det_core.interfaces.account_records import Role
from det_core.interfaces.records import CheckpointState, State
from det_core.interfaces.tracking import TrackingStore

from .serving import ServedSite
from .submitting import ended, submission

LEASE = "elsewhere:1:1:x"


def _experiment(store: TrackingStore, state: State | None = None) -> int:
    config = {"name": "x", "searcher": {"name": "single", "metric": "loss"}}
    experiment = store.create_experiment(config=config)
    if state:
        store.acquire_lease(experiment.id, LEASE, seconds=600, state=state)
    return experiment.id


def _checkpoint(store: TrackingStore, experiment_id: int, uuid: str = "c0ffee") -> int:
    trial = store.create_trial(experiment_id, hparams={}, seed=0)
    store.start_run(trial.id, allocation_id="a")
    storage = default_storage()
    files = Path(storage["container_path"]) / uuid
    files.mkdir(parents=True)
    (files / "model.bin").write_bytes(b"123")
    store.begin_checkpoint(uuid, trial_id=trial.id, run_id=1, storage=storage)
    store.complete_checkpoint(uuid, run_id=1, steps_completed=1, resources={"model.bin": 3}, metadata={})
    return trial.id


@pytest.mark.parametrize(
    ("action", "state"),
    [("pause", State.PAUSED), ("cancel", State.STOPPING_CANCELED), ("kill", State.STOPPING_KILLED)],
)
def test_a_running_experiment_is_asked_to_stop(team: ServedSite, action: str, state: State) -> None:
    experiment_id = _experiment(team.store, State.ACTIVE)
    answer = team.log_in("ann").post(f"/experiments/{experiment_id}/{action}")
    assert (answer.status, answer.headers["location"]) == (303, f"/experiments/{experiment_id}")
    assert team.store.experiment(experiment_id).state is state
    (entry,) = team.store.actions(limit=1)
    assert (entry.user, entry.action, entry.target) == ("ann", action, f"experiment {experiment_id}")
    assert entry.address == "127.0.0.1"


def test_an_experiment_without_a_runner_cannot_stop(local: ServedSite) -> None:
    experiment_id = _experiment(local.store)
    answer = local.owner.post(f"/experiments/{experiment_id}/pause")
    assert answer.status == 409 and f"nothing is running experiment {experiment_id}" in answer.text
    assert local.store.actions() == []
    assert local.owner.post("/experiments/99/pause").status == 404


def test_archive_labels_and_notes(local: ServedSite) -> None:
    experiment_id, owner = _experiment(local.store), local.owner
    for action, archived in (("archive", True), ("unarchive", False)):
        assert owner.post(f"/experiments/{experiment_id}/{action}").status == 303
        assert local.store.experiment(experiment_id).archived is archived
    local.store.edit_experiment(experiment_id, add_labels=["old", "kept"])
    assert owner.post(f"/experiments/{experiment_id}/labels", {"labels": "kept, <b>new</b>,, kept "}).status == 303
    assert list(local.store.experiment(experiment_id).labels) == ["kept", "<b>new</b>"]
    assert owner.post(f"/experiments/{experiment_id}/labels", {"labels": "x" * 201}).status == 409
    assert owner.post(f"/experiments/{experiment_id}/notes", {"notes": "one\r\ntwo "}).status == 303
    assert local.store.experiment(experiment_id).notes == "one\ntwo"
    assert [entry.action for entry in reversed(local.store.actions())] == ["archive", "unarchive", "labels", "notes"]


def test_actions_on_several_experiments_change_each_as_the_caller_may(team: ServedSite) -> None:
    store = team.store
    running, queued = _experiment(store, State.ACTIVE), _experiment(store)
    both = {"experiments": f"{running},{queued}"}
    page = team.log_in("ann").get(f"/experiments/confirm?action=pause&experiments={running}&experiments={queued}")
    assert "Pause 1 experiment?" in page.text and f"Not possible in their present state: {queued} (" in page.text
    page = team.log_in("ann").get(f"/experiments/confirm?action=move&experiments={running},{queued}")
    assert f"for id in {running} {queued}; do det experiment set project $id NAME; done" in page.text

    answer = team.log_in("ann").post("/experiments/pause", both)
    assert answer.status == 409 and "1 of 2 experiments were changed" in answer.text
    assert f"nothing is running experiment {queued}" in answer.text
    assert store.experiment(running).state is State.PAUSED
    done = [(entry.action, entry.target) for entry in store.actions() if entry.target]
    assert done == [("pause", f"experiment {running}")]

    moved = team.log_in("ann").post("/experiments/move", {**both, "project": "vision", "workspace": "lab"})
    assert moved.status == 303
    assert [one.id for one in store.experiments(where="project = vision and workspace = lab")] == [queued, running]
    assert store.experiment(running).config["name"] == "x"

    assert team.log_in("vic").post("/experiments/archive", both).status == 403
    assert team.log_in("vic").get(f"/experiments/confirm?action=archive&experiments={running}").status == 403
    assert 'value="archive"' not in team.log_in("vic").get("/experiments").text
    assert not store.experiment(running).archived


def test_the_list_is_as_before_after_an_action_on_several_experiments(local: ServedSite) -> None:
    first = _experiment(local.store)
    view = "?where=id+%3E+0&columns=owner&order=name&reverse=1&page=2"
    shown = local.owner.get(f"/experiments{view}").text
    assert f'name="back" value="{escape(view)}"' in shown
    page = local.owner.get(f"/experiments/confirm?action=archive&experiments={first}&back={quote(view)}").text
    (back,) = re.findall(r'name="back" value="([^"]*)"', page)
    assert f'href="/experiments{escape(view)}" data-close' in page
    answer = local.owner.post("/experiments/archive", {"experiments": str(first), "back": unescape(back)})
    assert (answer.status, answer.headers["location"]) == (303, f"/experiments{view}")
    for elsewhere in ("//example.org", "https://example.org/", "\r\nX: y"):
        answer = local.owner.post("/experiments/archive", {"experiments": "", "back": elsewhere})
        assert answer.headers["location"] == "/experiments"


def test_text_that_no_database_can_store_is_refused(local: ServedSite) -> None:
    experiment_id = _experiment(local.store)
    for body in (b"notes=a%00b", b"notes=%ff", b"notes", b"=&" * 200):
        kind = {"Content-Type": "application/x-www-form-urlencoded", "Origin": local.site.url}
        assert local.owner.request("POST", f"/experiments/{experiment_id}/notes", body, kind).status == 400, body
    assert local.store.experiment(experiment_id).notes == ""


def test_a_trial_is_killed(local: ServedSite) -> None:
    experiment_id = _experiment(local.store, State.ACTIVE)
    trial = local.store.create_trial(experiment_id, hparams={}, seed=0)
    answer = local.owner.post(f"/trials/{trial.id}/kill")
    assert (answer.status, answer.headers["location"]) == (303, f"/trials/{trial.id}")
    assert local.store.trial(trial.id).state is State.STOPPING_KILLED


def test_a_checkpoint_is_deleted_with_its_files(local: ServedSite) -> None:
    trial_id = _checkpoint(local.store, _experiment(local.store))
    answer = local.owner.post("/checkpoints/c0ffee/delete")
    assert (answer.status, answer.headers["location"]) == (303, f"/trials/{trial_id}"), answer.text
    assert local.store.checkpoint("c0ffee").state is CheckpointState.DELETED
    assert not (Path(default_storage()["container_path"]) / "c0ffee" / "model.bin").exists()
    assert local.owner.post("/checkpoints/unknown/delete").status == 404


@pytest.mark.parametrize(
    "path",
    [
        "/checkpoints/c0ffee/delete",
        "/experiments/1/resume",
        "/api/checkpoints/c0ffee/delete",
        "/api/experiments/1/tensorboard/delete",
        "/api/experiments/1/start",
    ],
)
def test_what_a_user_asked_for_is_not_begun_after_the_end_of_the_account(
    team: ServedSite, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """The entry in the audit log waits for those of others, which may be the end of the account."""
    trial_id = _checkpoint(team.store, _experiment(team.store))
    team.store.set_experiment_state(team.store.trial(trial_id).experiment_id, State.ERROR)
    team.add_user("boss", Role.ADMIN)
    execute, started = team.store.execute, list[int]()

    def wait(*call: Any) -> Any:
        team.store.edit_user("root", active=False)
        return execute(*call)

    browser, program = team.log_in("root"), team.program("root")
    monkeypatch.setattr(team.store, "execute", wait)
    monkeypatch.setattr(RunnerKeeper, "start_runner", lambda _, one, **__: started.append(one))
    answer = program.call(path, {}) if path.startswith("/api/") else browser.post(path)
    assert answer.status == 401, answer.text
    assert (Path(default_storage()["container_path"]) / "c0ffee" / "model.bin").exists()
    assert started == []
    assert {one.action for one in team.store.actions()} == {"login"}


def _of_running_trial(store: TrackingStore) -> None:
    _checkpoint(store, _experiment(store, State.ACTIVE))


def _of_a_model(store: TrackingStore) -> None:
    _checkpoint(store, _experiment(store))
    store.add_model_version(store.create_model("m").id, "c0ffee")


@pytest.mark.parametrize("prepare", [_of_running_trial, _of_a_model])
def test_a_checkpoint_that_is_needed_stays(local: ServedSite, prepare: Callable[[TrackingStore], None]) -> None:
    prepare(local.store)
    assert local.owner.post("/checkpoints/c0ffee/delete").status in (400, 409)
    assert (Path(default_storage()["container_path"]) / "c0ffee" / "model.bin").exists()


def test_models(team: ServedSite) -> None:
    _checkpoint(team.store, _experiment(team.store))
    ann = team.log_in("ann")
    answer = ann.post("/models", {"name": "digits", "description": "reads digits", "checkpoint": "c0ffee"})
    model = team.store.model("digits")
    assert (answer.status, answer.headers["location"]) == (303, f"/models/{model.id}")
    assert (model.owner, model.description, model.versions) == ("ann", "reads digits", 1)
    assert (
        ann.post(f"/models/{model.id}/versions", {"checkpoint": "c0ffee", "name": "v2", "comment": "again"}).status
        == 303
    )
    assert ann.post("/models", {"model": str(model.id), "checkpoint": "c0ffee"}).status == 303
    assert [version.name for version in team.store.model_versions("digits")] == ["", "v2", ""]
    assert ann.post(f"/models/{model.id}/notes", {"notes": "good"}).status == 303
    assert ann.post(f"/models/{model.id}/archive").status == 303
    assert team.store.model("digits").archived and team.store.model("digits").notes == "good"
    assert ann.post(f"/models/{model.id}/unarchive").status == 303


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"name": ""}, 400),
        ({"name": "a/b"}, 400),
        ({"name": "x", "checkpoint": "../../etc/passwd"}, 400),
        ({"name": "x", "checkpoint": "unknown"}, 404),
        ({"model": "99"}, 404),
        ({"model": "1 or 1"}, 400),
        ({"name": "taken"}, 409),
    ],
    ids=str,
)
def test_wrong_models(local: ServedSite, fields: dict[str, Any], status: int) -> None:
    local.store.create_model("taken")
    answer = local.owner.post("/models", fields)
    assert answer.status == status
    assert [model.name for model in local.store.models()] == ["taken"]


@pytest.mark.integration
def test_a_stopped_experiment_is_resumed(local: ServedSite, tmp_path: Path) -> None:
    body = submission(tmp_path / "code", "raise SystemExit(3)")
    experiment_id = local.commands.call("/api/experiments", body).json["id"]
    assert ended(local.store, experiment_id) is State.ERROR
    answer = local.owner.post(f"/experiments/{experiment_id}/resume", {"from_beginning": "1"})
    assert (answer.status, answer.headers["location"]) == (303, f"/experiments/{experiment_id}"), answer.text
    assert ended(local.store, experiment_id) is State.ERROR
    (trial,) = local.store.trials(experiment_id)
    assert len(local.store.runs(trial.id)) == 2
