"""SDK classes for the model registry."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest

import det_core
from det_core.errors import RecordExists, RecordInUse, RecordNotFound, TrackingError
from det_core.experimental import Checkpoint, Determined, Model, ModelOrderBy, ModelSortBy

from ..cli.conftest import Record


@pytest.fixture
def model(trained: Record) -> Model:
    return Determined(user="ada").create_model("digits", "0 to 9", {"stage": "trial"})


def test_a_model_is_created_and_found(model: Model, trained: Record) -> None:
    assert (model.name, model.description, model.metadata) == ("digits", "0 to 9", {"stage": "trial"})
    assert model.creation_time == model.last_updated_time == trained.store.model("digits").creation_time
    assert trained.store.model("digits").owner == "ada"
    with pytest.raises(RecordExists, match="'digits'"):
        Determined().create_model("digits")
    other = Determined().create_model("other", None)
    assert (other.description, trained.store.model("other").owner) == ("", getpass.getuser())
    assert Determined().get_model(other.model_id).name == "other"
    with pytest.raises(RecordNotFound, match="no model 'nothing'"):
        Determined().get_model("nothing")


def test_versions_are_registered_and_listed(model: Model) -> None:
    assert model.get_version() is None
    assert model.get_versions() == []
    first = model.register_version("best-one")
    model.register_version("last-one")
    assert isinstance(first, Checkpoint)
    assert (first.uuid, first.model_name, first.model_version, first.batch_number) == ("best-one", "digits", 1, 200)
    assert (first.checkpoint.uuid, first.checkpoint.model_version) == ("best-one", None)
    assert [one.model_version for one in model.get_versions()] == [2, 1]
    assert [one.uuid for one in model.get_versions(ModelOrderBy.ASCENDING)] == ["best-one", "last-one"]
    found = {number: model.get_version(number) for number in (0, -1, 1, 2, 3)}
    assert {number: one and one.uuid for number, one in found.items()} == {
        0: "last-one",
        -1: "last-one",
        1: "best-one",
        2: "last-one",
        3: None,
    }


def test_a_version_downloads_and_is_edited_as_its_checkpoint(model: Model, trained: Record) -> None:
    version = model.register_version("best-one")
    assert Path(version.download(), "weights").read_text() == "w"
    version.add_metadata({"seen": True})
    assert trained.store.checkpoint("best-one").metadata["seen"] is True
    version.set_name("stable")
    version.set_notes("n")
    again = model.get_version(1)
    assert again
    assert (again.name, again.notes, again.metadata["seen"]) == ("stable", "n", True)
    version.delete()
    assert model.get_version() is None


def test_registered_checkpoints_cannot_be_deleted(model: Model, trained: Record) -> None:
    model.register_version("best-one")
    with pytest.raises(RecordInUse, match="det model delete-version digits 1"):
        trained.store.delete_checkpoint("best-one")
    with pytest.raises(RecordNotFound):
        model.register_version("nothing")
    model.delete()
    with pytest.raises(RecordNotFound, match="no model 'digits'"):
        model.get_version(7)
    assert trained.store.delete_checkpoint("best-one")


def test_metadata_labels_and_notes_of_a_model_are_edited(model: Model) -> None:
    same = Determined().get_model("digits")
    model.add_metadata({"stage": "production", "by": "ada"})
    same.add_metadata({"by": "bob"})
    model.remove_metadata(["stage", "nothing"])
    assert model.metadata == {"by": "bob"}
    with pytest.raises(TypeError, match="'x'"):
        model.add_metadata({"x": object()})
    model.set_description("d")
    model.set_labels(["a", "b"])
    model.set_notes("n")
    again = Determined().get_model("digits")
    assert (again.description, again.labels, again.notes, model.description) == ("d", ["a", "b"], "n", "d")
    assert again.last_updated_time
    assert model.creation_time
    assert again.last_updated_time > model.creation_time
    model.archive()
    with pytest.raises(TrackingError, match="archived"):
        model.register_version("best-one")
    assert same.archived
    model.unarchive()
    assert model.register_version("best-one").model_version == 1


def test_models_are_filtered_and_sorted(model: Model) -> None:
    det = Determined()
    det.create_model("all digits", "z")
    det.create_model("letters", "a")

    def names(*arguments: object, **filters: str) -> list[str]:
        return [one.name for one in det.get_models(*arguments, **filters)]  # type: ignore[arg-type]

    assert names() == names(ModelSortBy.UNSPECIFIED) == ["all digits", "digits", "letters"]
    assert names(ModelSortBy.CREATION_TIME) == ["digits", "all digits", "letters"]
    assert names(ModelSortBy.DESCRIPTION, ModelOrderBy.DESCENDING) == ["all digits", "letters", "digits"]
    det.get_model("digits").add_metadata({})
    assert names(ModelSortBy.LAST_UPDATED_TIME)[-1] == "digits"
    assert names(name="DIGITS") == ["all digits", "digits"]
    assert names(name="DIGITS", description="9") == ["digits"]
    assert [one.name for one in det.list_models()] == names()


def test_a_script_records_that_it_uses_a_version(model: Model, trained: Record) -> None:
    version = model.register_version("best-one")
    with det_core.core.init() as context:
        context.experimental.report_task_using_model_version(version)
        trial_id = context.trial.trial_id
    assert trained.store.trials_using("best-one") == [trial_id]
