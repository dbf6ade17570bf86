"""The ``det model`` commands."""

from __future__ import annotations

import io

import pytest

from det_core.interfaces.records import CheckpointState

from .conftest import Det, Record


@pytest.fixture
def digits(det: Det, trained: Record) -> Record:
    """Create a model with one version."""
    created = det("model", "create", "digits", "--description", "0 to 9", "--label", "a", "--metadata", "stage=trial")
    assert (created.code, created.out) == (0, "Created model digits\n")
    registered = det("model", "register-version", "digits", "best-one", "--comment", "the first")
    assert (registered.code, registered.out) == (0, "Checkpoint best-one is version 1 of model digits\n")
    return trained


def test_list_shows_models_in_order(det: Det, digits: Record) -> None:
    det("model", "create", "letters", "--notes", "n")
    header, first, second = det("model", "list").out.splitlines()
    assert header.split() == ["NAME", "VERSIONS", "UPDATED", "OWNER", "LABELS", "DESCRIPTION"]
    assert first.split()[:2] == ["digits", "1"]
    assert first.endswith("0 to 9")
    assert second.split()[:2] == ["letters", "0"]
    names = [one["name"] for one in det("m", "ls", "--sort-by", "creation_time", "--reverse", "--json").json]
    assert names == ["letters", "digits"]
    assert [one["name"] for one in det("model", "list", "--name", "GIT", "--json").json] == ["digits"]
    assert det("model", "list", "--name", "nothing").out == "No models. To create one: det model create NAME\n"


def test_describe_shows_metadata_and_versions(det: Det, digits: Record) -> None:
    out = det("model", "describe", "digits").out
    for text in ("0 to 9", "metadata.stage", "trial", "best-one", "the first"):
        assert text in out
    described = det("model", "describe", "digits", "--json").json
    assert (described["metadata"], described["versions"]) == ({"stage": "trial"}, 1)
    assert [one["checkpoint_uuid"] for one in described["model_versions"]] == ["best-one"]
    missing = det("model", "describe", "nothing")
    assert (missing.code, "there is no model 'nothing'" in missing.err) == (1, True)


def test_versions_are_added_edited_and_deleted(det: Det, digits: Record) -> None:
    assert det("model", "register-version", "digits", "last-one", "--json").json["version"] == 2
    assert [line.split()[:2] for line in det("model", "list-versions", "digits").out.splitlines()[1:]] == [
        ["1", "best-one"],
        ["2", "last-one"],
    ]
    assert det("model", "edit-version", "digits", "2", "--name", "stable").code == 0
    assert det("model", "list-versions", "digits", "--json").json[1]["name"] == "stable"
    assert det("model", "delete-version", "digits", "2", "--yes").code == 0
    assert det("model", "delete-version", "digits", "2", "--yes").code == 1
    assert len(det("model", "list-versions", "digits", "--json").json) == 1


def test_edit_changes_only_the_given_fields(det: Det, digits: Record) -> None:
    arguments = ("--metadata", "seen=[1, 2]", "--metadata", "by=ada", "--remove-metadata", "stage", "--notes", "n")
    changed = det("model", "edit", "digits", *arguments, "--json").json
    assert (changed["metadata"], changed["notes"]) == ({"seen": [1, 2], "by": "ada"}, "n")
    assert (changed["labels"], changed["description"]) == (["a"], "0 to 9")
    wrong = det("model", "edit", "digits", "--metadata", "stage")
    assert (wrong.code, "expected KEY=VALUE such as stage=production, got 'stage'" in wrong.err) == (2, True)


def test_an_archived_model_accepts_no_versions(det: Det, digits: Record) -> None:
    assert det("model", "archive", "digits").out == "Archived model digits\n"
    assert det("model", "list").out.startswith("No models")
    assert "digits" in det("model", "list", "--all").out
    refused = det("model", "register-version", "digits", "last-one")
    assert (refused.code, "det model unarchive digits" in refused.err) == (1, True)
    assert det("model", "unarchive", "digits").code == 0
    assert det("model", "register-version", "digits", "last-one").code == 0


def test_delete_asks_for_confirmation(det: Det, digits: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (det("model", "delete", "digits").code, det("model", "list", "--json").json[0]["versions"]) == (2, 1)
    for answer, left in (("n", 1), ("y", 0)):
        terminal = io.StringIO(f"{answer}\n")
        terminal.isatty = lambda: True  # type: ignore[method-assign]
        monkeypatch.setattr("sys.stdin", terminal)
        assert "with 1 version, but keep the checkpoints?" in det("model", "delete", "digits").out
        assert len(det("model", "list", "--json").json) == left
    assert digits.store.checkpoint("best-one").state is CheckpointState.COMPLETED


def test_checkpoints_of_a_model_are_not_removed(det: Det, digits: Record) -> None:
    refused = det("checkpoint", "rm", "last-one", "best-one", "--yes")
    assert (refused.code, "det model delete-version" in refused.err) == (1, True)
    assert [one.uuid for one in digits.store.checkpoints()] == ["best-one", "last-one"]
    assert det("model", "delete", "digits", "--yes").code == 0
    assert det("checkpoint", "rm", "last-one", "best-one", "--yes").code == 0
