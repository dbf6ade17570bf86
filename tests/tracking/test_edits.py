"""Editing, searching and deletion of experiments."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from typing import Any

import pytest

from det_core.errors import ExperimentBusy, RecordNotFound
from det_core.interfaces.records import CheckpointState, LogLine, MetricsReport, Run, State, TrialRecord
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import _experiment_deletion


def test_an_experiment_is_edited(store: TrackingStore) -> None:
    created = store.create_experiment(config={"name": "first", "labels": ["a"]})
    assert store.edit_experiment(created.id) == created
    edited = store.edit_experiment(
        created.id,
        name="second",
        description="why",
        notes="long",
        add_labels=["b", "a", "c", "b"],
        remove_labels=["a", "d"],
        archived=True,
    )
    assert (edited.name, edited.description, edited.notes) == ("second", "why", "long")
    assert (edited.labels, edited.archived, edited.config) == (["b", "c"], True, created.config)
    assert store.experiment(created.id) == edited
    edited = store.edit_experiment(created.id, description="", remove_labels=["b", "c"])
    assert (edited.description, edited.labels) == ("", [])
    with pytest.raises(RecordNotFound):
        store.edit_experiment(9, name="x")


def test_labels_added_at_once_are_all_kept(store: TrackingStore) -> None:
    experiment = store.create_experiment(config={"name": "first"})
    labels = [f"label {number}" for number in range(20)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda label: store.edit_experiment(experiment.id, add_labels=[label]), labels))
    assert sorted(store.experiment(experiment.id).labels) == sorted(labels)


class Unsearchable(list[str]):
    """List of any length, which would take long to search for each label while others wait to write."""

    def __contains__(self, item: object) -> bool:
        raise AssertionError(f"the list was searched for {item}")


def test_edits_search_no_lists(store: TrackingStore) -> None:
    removed = Unsearchable(["a"])
    experiment = store.create_experiment(config={"labels": ["a", "b"]})
    assert store.edit_experiment(experiment.id, remove_labels=removed).labels == ["b"]
    store.create_model("m", metadata={"a": 1, "b": 2})
    assert store.edit_model_metadata("m", remove=removed).metadata == {"b": 2}


LABELS = ["plain", 'quo"te', "back\\", "é", "a,b", '["', 'a,"plain"']


@pytest.fixture
def several(store: TrackingStore) -> None:
    for number, name in enumerate(("Zebra_1", "apple%", "zebra"), 1):
        store.create_experiment(config={"name": name, "labels": LABELS[number:] if number < 3 else []})
    store.set_experiment_state(2, State.COMPLETED)
    store.edit_experiment(3, archived=True)
    store.set_experiment_progress(1, 0.9)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [3, 2, 1]),
        ({"states": [State.COMPLETED]}, [2]),
        ({"states": [State.COMPLETED, State.QUEUED]}, [3, 2, 1]),
        ({"name": "zEbra"}, [3, 1]),
        ({"name": "a_1"}, [1]),
        ({"name": "%"}, [2]),
        ({"archived": False}, [2, 1]),
        ({"archived": True}, [3]),
        ({"reverse": True}, [1, 2, 3]),
        ({"order": "progress"}, [2, 1, 3]),
        ({"order": "state"}, [2, 3, 1]),
        ({"order": "state", "limit": 1, "offset": 1}, [3]),
    ],
)
@pytest.mark.usefixtures("several")
def test_experiments_are_filtered_and_sorted(
    store: TrackingStore, options: dict[str, Any], expected: list[int]
) -> None:
    assert [found.id for found in store.experiments(**options)] == expected


@pytest.mark.usefixtures("several")
def test_experiments_are_found_by_label(store: TrackingStore) -> None:
    for label in [*LABELS, "lain", "te", "", "PLAIN", "b"]:
        expected = [found.id for found in store.experiments() if label in found.labels]
        assert [found.id for found in store.experiments(label=label)] == expected, label
    assert [found.id for found in store.experiments(label=LABELS[2])] == [2, 1]


def test_an_unknown_order_is_rejected(store: TrackingStore) -> None:
    with pytest.raises(ValueError, match="'color'; expected id, start_time"):
        store.experiments(order="color")


def fill(store: TrackingStore, run: Run, reports: int = 3) -> None:
    """Add rows of a run to every table."""
    trial = run.trial_id
    one = {"trial_id": trial, "run_id": run.run_id}
    store.report_metrics(
        [MetricsReport(**one, group="training", steps_completed=step, metrics={}) for step in range(reports)]
    )
    store.add_logs([LogLine(**one, rank=0, stdtype="stdout", log="hi", time=datetime.now(timezone.utc))])
    store.begin_checkpoint(f"c{trial}", trial_id=trial, run_id=run.run_id, storage={})
    store.complete_checkpoint(f"c{trial}", run_id=run.run_id, steps_completed=1, resources={}, metadata={})
    store.add_trial_source(trial, run.run_id, f"c{trial}")


def test_a_deleted_experiment_leaves_no_rows(
    store: TrackingStore, trial: TrialRecord, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_experiment_deletion, "_PIECE", 2)
    kept = store.create_trial(store.create_experiment(config={"name": "kept"}).id, hparams={}, seed=1)
    fill(store, run)
    fill(store, store.start_run(kept.id, allocation_id="b"))
    store.acquire_lease(trial.experiment_id, "me", seconds=60)
    with pytest.raises(ExperimentBusy, match="is being run by me"):
        store.delete_experiment(trial.experiment_id)
    store.release_lease(trial.experiment_id, "me")
    store.delete_experiment(trial.experiment_id)
    assert [found.name for found in store.experiments()] == ["kept"]
    assert [found.uuid for found in store.checkpoints(states=list(CheckpointState))] == [f"c{kept.id}"]
    assert len(list(store.metrics(kept.id))) == 3
    for lost in (lambda: store.trial(trial.id), lambda: store.delete_experiment(trial.experiment_id)):
        with pytest.raises(RecordNotFound):
            lost()
    again = store.create_trial(store.create_experiment(config={}).id, hparams={}, seed=1)
    assert again.id > kept.id  # ids are never reused
    assert list(store.metrics(again.id)) == []


def test_searches_for_texts_take_no_longer_than_their_lengths_permit(store: TrackingStore) -> None:
    """A search would otherwise keep a reading transaction for minutes."""
    long = "a" * 1_000_000
    store.create_experiment(config={"name": long})
    store.create_model("m", description=long)
    begin = time.monotonic()
    assert store.experiments(name="A" * 200)
    assert not store.experiments(name="a" * 199 + "b")
    assert store.models(description="A" * 200)
    assert not store.models(description="a" * 199 + "b")
    assert time.monotonic() - begin < 60
    for look in (store.experiments, store.count_experiments, store.models):
        with pytest.raises(ValueError, match="at most 200"):
            look(name="a" * 201)
