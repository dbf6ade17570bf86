"""Model registry in the tracking store."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from det_core.errors import RecordExists, RecordInUse, RecordNotFound, TrackingError
from det_core.interfaces.model_records import ModelSort
from det_core.interfaces.records import SEARCHED, CheckpointState, MetricsReport, Run
from det_core.interfaces.tracking import TrackingStore

Complete = Callable[..., str]


@pytest.fixture
def complete(store: TrackingStore, run: Run) -> Complete:
    """Return a function that completes a checkpoint of the first run, as in ``complete("c", 100)``."""

    def new(uuid: str, step: int = 100) -> str:
        store.begin_checkpoint(uuid, trial_id=run.trial_id, run_id=1, storage={})
        store.complete_checkpoint(uuid, run_id=1, steps_completed=step, resources={"w": 1}, metadata={"a": 1})
        return uuid

    return new


def test_a_model_is_created_edited_and_deleted(store: TrackingStore, complete: Complete) -> None:
    made = store.create_model("digits", description="0 to 9", metadata={"é": [None]}, labels=["x"], owner="ada")
    assert (made.versions, made.archived, made.metadata) == (0, False, {"é": [None]})
    assert made.creation_time == made.last_updated_time
    assert store.model("digits") == store.model(made.id) == made
    version = store.add_model_version("digits", complete("c"), version_name="first", metadata={"m": 1}, owner="bob")
    assert (version.version, version.checkpoint_uuid, version.name, version.owner) == (1, "c", "first", "bob")
    edited = store.edit_model("digits", notes="n", labels=[])
    assert (edited.notes, edited.labels, edited.description, edited.versions) == ("n", [], "0 to 9", 1)
    assert edited.last_updated_time > made.last_updated_time
    changed = store.edit_model_version("digits", 1, comment="good")
    assert (changed.comment, changed.name) == ("good", "first")
    store.delete_model("digits")
    with pytest.raises(RecordNotFound, match="there is no model 'digits'"):
        store.model("digits")
    assert store.checkpoint("c").state is CheckpointState.COMPLETED
    assert store.create_model("digits").id > made.id


def test_names_are_unique_and_fit_a_url(store: TrackingStore) -> None:
    store.create_model("a b")
    with pytest.raises(RecordExists, match="model 'a b' already exists"):
        store.create_model("a b")
    for wrong in ("", " ", "12", "a/b", "a\\b", " a"):
        with pytest.raises(ValueError, match="cannot have the name"):
            store.create_model(wrong)
    with pytest.raises(TypeError, match=r"metadata|'a'"):
        store.create_model("c", metadata={"a": object()})
    assert [model.name for model in store.models()] == ["a b"]


def test_models_are_listed_in_order_and_found(store: TrackingStore) -> None:
    for name, description in (("b", "50% of it"), ("C", "x"), ("a", "x_y")):
        store.create_model(name, description=description)
    store.edit_model("C", archived=True)

    def names(**how: object) -> str:
        return "".join(model.name for model in store.models(**how))  # type: ignore[arg-type]

    assert names(sort_by=ModelSort.CREATION_TIME) == "bCa"
    assert names(sort_by=ModelSort.LAST_UPDATED_TIME, descending=True) == "Cab"
    assert names(sort_by=ModelSort.DESCRIPTION) == "bCa"
    assert sorted(names()) == sorted(names(descending=True)) == ["C", "a", "b"]
    assert names(name="c") == "C"
    assert names(description="%") == "b"
    assert names(description="_") == "a"
    assert names(archived=False, descending=True) == "ba"
    assert names(sort_by=ModelSort.CREATION_TIME, limit=1) == "b"


def test_metadata_is_edited_key_by_key(store: TrackingStore, complete: Complete) -> None:
    store.create_model("m", metadata={"a": 1, "b": 2})
    assert store.edit_model_metadata("m", add={"b": 3, "c": {"d": []}}, remove=["a", "z"]).metadata == {
        "b": 3,
        "c": {"d": []},
    }
    complete("c")
    before = store.checkpoint("c")
    changed = store.edit_checkpoint_metadata("c", add={"tag": "x"}, remove=["a"])
    assert (changed.metadata, changed.time) == ({"tag": "x"}, before.time)
    assert store.checkpoint("c") == changed
    with pytest.raises(RecordNotFound):
        store.edit_checkpoint_metadata("z", add={})
    with pytest.raises(TypeError):
        store.edit_checkpoint_metadata("c", add={"x": object()})


def test_concurrent_edits_of_metadata_are_all_kept(store: TrackingStore, complete: Complete) -> None:
    complete("c")
    store.create_model("m")

    def add(who: int) -> None:
        for number in range(5):
            store.edit_checkpoint_metadata("c", add={f"{who}-{number}": 1})
            store.add_model_version("m", "c")

    threads = [threading.Thread(target=add, args=(who,)) for who in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(store.checkpoint("c").metadata) == 1 + 10
    assert [version.version for version in store.model_versions("m")] == list(range(1, 11))


def test_version_numbers_are_never_reused(store: TrackingStore, complete: Complete) -> None:
    store.create_model("m")
    for uuid in "ab":
        store.add_model_version("m", complete(uuid))
    store.delete_model_version("m", 2)
    assert store.add_model_version("m", "a").version == 3
    assert [version.version for version in store.model_versions("m")] == [1, 3]
    assert store.model("m").versions == 2
    for ask in (store.model_version, store.delete_model_version):
        with pytest.raises(RecordNotFound, match="no version 2 of model 'm'"):
            ask("m", 2)


def test_only_completed_checkpoints_become_versions(store: TrackingStore, run: Run, complete: Complete) -> None:
    store.create_model("m")
    with pytest.raises(RecordNotFound, match="there is no checkpoint z"):
        store.add_model_version("m", "z")
    store.begin_checkpoint("active", trial_id=run.trial_id, run_id=1, storage={})
    with pytest.raises(TrackingError, match="active is ACTIVE, but only COMPLETED"):
        store.add_model_version("m", "active")
    store.edit_model("m", archived=True)
    with pytest.raises(TrackingError, match="det model unarchive m"):
        store.add_model_version("m", complete("c"))
    assert store.model_versions("m") == []


def test_a_checkpoint_of_a_model_and_its_experiment_cannot_be_deleted(
    store: TrackingStore, run: Run, complete: Complete
) -> None:
    store.create_model("m n")
    store.add_model_version("m n", complete("c"))
    complete("other")
    experiment = store.trial(run.trial_id).experiment_id
    assert store.registered_checkpoints(experiment) == {"c"}
    for how in ({}, {"remaining": {"w": 1}}):
        with pytest.raises(RecordInUse, match="is version 1 of model 'm n'.*det model delete-version 'm n' 1"):
            store.delete_checkpoint("c", **how)
    with pytest.raises(RecordInUse, match="are version 1 of model 'm n'.*det model delete-version 'm n' 1"):
        store.delete_experiment(experiment)
    assert store.checkpoint("c").state is CheckpointState.COMPLETED
    store.delete_model_version("m n", 1)
    assert store.registered_checkpoints(experiment) == set()
    assert store.delete_checkpoint("c")
    assert store.delete_checkpoint("other")
    with pytest.raises(RecordNotFound):
        store.registered_checkpoints(99)


def test_checkpoint_validations_have_the_step_of_the_checkpoint(
    store: TrackingStore, run: Run, complete: Complete
) -> None:
    for uuid, step in (("a", 100), ("b", 200), ("c", 300)):
        complete(uuid, step)
    for step, group in ((100, "validation"), (150, "validation"), (200, "training"), (300, "validation")):
        report = MetricsReport(
            trial_id=run.trial_id, run_id=1, group=group, steps_completed=step, metrics={"loss": float(step)}
        )
        store.report_metrics([report])
    expected = {"a": {"loss": 100.0}, "c": {"loss": 300.0}}
    experiment = store.trial(run.trial_id).experiment_id
    assert store.checkpoint_validations(experiment_id=experiment) == expected
    assert store.checkpoint_validations(trial_id=run.trial_id) == expected
    assert store.checkpoint_validations(uuid="c") == {"c": {"loss": 300.0}}
    assert store.checkpoint_validations(experiment_id=experiment + 1) == {}


def test_lists_can_leave_out_what_is_large(store: TrackingStore, complete: Complete) -> None:
    long, metadata = "d" * SEARCHED, {"a": 1}
    for name in ("a", "b", "c"):
        store.create_model(name, description=f"{long}, the end", notes=f"{long}.", metadata=metadata, labels=["x"])
    assert [one.name for one in store.models(offset=1, limit=1)] == ["b"]
    (brief,) = store.models(name="c", brief=True)
    assert brief == replace(store.model("c"), description=long, notes=long, metadata={})
    for step in range(3):
        store.add_model_version("a", complete(f"c{step}", step), comment=f"{long}!", metadata=metadata)
    last = store.model_versions("a")[1:]
    assert store.model_versions("a", limit=2, brief=True) == [replace(one, comment=long, metadata={}) for one in last]
