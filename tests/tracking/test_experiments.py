"""Experiments and their leases in the tracking store."""

from __future__ import annotations

import math
import time
from datetime import datetime, timedelta, timezone

import pytest

from det_core.errors import ExperimentBusy, RecordNotFound, StaleRun
from det_core.interfaces.records import CodeVersion, State
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store

CONFIG = {"name": "digits", "description": "ü", "labels": ["a", "b"], "hyperparameters": {"z": 1, "a": [1.5, None]}}


def test_an_experiment_comes_back_as_it_was_created(store: TrackingStore) -> None:
    created = store.create_experiment(
        config=CONFIG, original_config="name: digits # mine\n", model_definition=b"\0tar", owner="ada", unmanaged=True
    )
    found = store.experiment(created.id)
    assert found == created
    assert (found.name, found.description, found.labels) == ("digits", "ü", ["a", "b"])
    assert found.config == CONFIG
    assert list(found.config["hyperparameters"]) == ["z", "a"]
    assert (found.state, found.owner, found.unmanaged, found.archived) == (State.QUEUED, "ada", True, False)
    assert found.original_config == "name: digits # mine\n"
    assert store.model_definition(created.id) == b"\0tar"
    assert datetime.now(timezone.utc) - found.start_time < timedelta(minutes=1)


def test_config_keeps_infinities_and_their_names_apart(store: TrackingStore) -> None:
    config = {"name": "Infinity", "limit": math.inf, "nan": math.nan}
    back = store.create_experiment(config=config).config
    assert (back["name"], back["limit"]) == ("Infinity", math.inf)
    assert math.isnan(back["nan"])


def test_the_error_names_the_config_key_that_is_not_json_compatible(store: TrackingStore) -> None:
    with pytest.raises(TypeError, match=r"'data.path\[1\]' is a pathlib.*expected numbers"):
        store.create_experiment(config={"data": {"path": ["x", __import__("pathlib").Path("y")]}})
    assert store.experiments() == []


def test_an_experiment_with_an_existing_external_id_is_returned_unchanged(store: TrackingStore) -> None:
    first = store.create_experiment(config={"name": "one"}, external_id="x")
    assert store.create_experiment(config={"name": "two"}, external_id="x") == first
    assert store.create_experiment(config={}).id != store.create_experiment(config={}).id


def test_an_experiment_has_the_commit_that_its_code_comes_from(store: TrackingStore) -> None:
    commit = CodeVersion(commit="a" * 40, branch="main", is_changed=True, remote="https://example.org/digits")
    first, without = (store.create_experiment(config={}, external_id="x", code_version=commit).id, new(store))
    again = CodeVersion(commit="b" * 40)
    assert store.create_experiment(config={}, external_id="x", code_version=again).id == first
    assert store.code_versions([first, without, 99]) == {first: commit}
    assert store.code_versions([]) == {}
    store.delete_experiment(first)


def new(store: TrackingStore) -> int:
    return store.create_experiment(config={}).id


def test_pages_come_newest_first(store: TrackingStore) -> None:
    ids = [store.create_experiment(config={}).id for _ in range(5)]
    newest_first = ids[::-1]
    pages = {(None, 0): newest_first, (2, 0): newest_first[:2], (2, 4): newest_first[4:], (None, 3): newest_first[3:]}
    for (limit, offset), expected in pages.items():
        assert [found.id for found in store.experiments(limit=limit, offset=offset)] == expected


def test_final_states_set_the_end_and_others_clear_it(store: TrackingStore) -> None:
    number = store.create_experiment(config={}).id
    store.set_experiment_state(number, State.ERROR, error="no loss")
    failed = store.experiment(number)
    assert (failed.state, failed.error) == (State.ERROR, "no loss")
    assert failed.end_time is not None
    store.set_experiment_state(number, State.ACTIVE)
    store.set_experiment_progress(number, 0.25)
    active = store.experiment(number)
    assert (active.state, active.error, active.end_time, active.progress) == (State.ACTIVE, None, None, 0.25)
    store.set_experiment_state(number, State.COMPLETED)
    assert store.experiment(number).progress == 1  # in one transaction, as the runner may be killed at any time


def test_only_one_runner_holds_the_lease(store: TrackingStore) -> None:
    number = store.create_experiment(config={}).id
    with open_store(store.url) as other:
        store.acquire_lease(number, "host:1", seconds=60)
        store.acquire_lease(number, "host:1", seconds=60)
        with pytest.raises(ExperimentBusy, match="host:1"):
            other.acquire_lease(number, "host:2", seconds=60)
        assert other.lease_holder(number) == "host:1"
        other.release_lease(number, "host:2")
        assert other.lease_holder(number) == "host:1"
        store.release_lease(number, "host:1")
        assert other.lease_holder(number) is None
        other.acquire_lease(number, "host:2", seconds=60)


def test_a_runner_that_lost_its_lease_cannot_write(store: TrackingStore) -> None:
    number = store.create_experiment(config={}).id
    store.acquire_lease(number, "old", seconds=0.05)
    trial = store.create_trial(number, hparams={}, seed=0, lease="old")
    time.sleep(0.1)
    assert store.lease_holder(number) is None
    store.set_experiment_state(number, State.ACTIVE, lease="old")  # nobody has taken it yet
    with open_store(store.url) as other:
        other.acquire_lease(number, "new", seconds=60)
    writes = (
        lambda: store.set_experiment_state(number, State.COMPLETED, lease="old"),
        lambda: store.set_experiment_progress(number, 0.5, lease="old"),
        lambda: store.create_trial(number, hparams={}, seed=0, lease="old"),
        lambda: store.set_trial_state(trial.id, State.COMPLETED, lease="old"),
        lambda: store.count_restart(trial.id, lease="old"),
        lambda: store.start_run(trial.id, allocation_id="a", lease="old"),
    )
    for write in writes:
        with pytest.raises(StaleRun, match="no longer run by old, but by new"):
            write()
    assert store.trials(number) == [trial]
    assert store.experiment(number).state is State.ACTIVE


@pytest.mark.parametrize("seconds", [math.inf, -math.inf, math.nan, 10.0**9, -(10.0**9)])
def test_a_lease_lasts_a_day_at_most(store: TrackingStore, seconds: float) -> None:
    number = store.create_experiment(config={}).id
    for lease in (store.acquire_lease, store.renew_lease):
        with pytest.raises(ValueError, match="expected at most 86400"):
            lease(number, "holder", seconds=seconds)
    assert store.lease_holder(number) is None


def test_a_lease_holder_is_as_short_as_a_name(store: TrackingStore) -> None:
    """Lists of experiments read the holders of all of them."""
    number = store.create_experiment(config={}).id
    with pytest.raises(ValueError, match="the holder has 4001 characters; expected at most 4000"):
        store.acquire_lease(number, "h" * 4001, seconds=60)
    store.acquire_lease(number, "h" * 4000, seconds=60)
    assert store.lease_holders([number]) == {number: "h" * 4000}


@pytest.mark.parametrize("progress", [math.nan, math.inf, -0.1, 1.1])
def test_progress_is_a_share(store: TrackingStore, progress: float) -> None:
    number = store.create_experiment(config={}).id
    run = store.start_run(store.create_trial(number, hparams={}, seed=0).id, allocation_id="a")
    with pytest.raises(ValueError, match="expected 0 to 1"):
        store.set_experiment_progress(number, progress)
    with pytest.raises(ValueError, match="expected 0 to 1"):
        store.set_trial_progress(run.trial_id, run.run_id, progress)


def test_a_lease_that_another_runner_had_meanwhile_is_not_renewed(store: TrackingStore) -> None:
    """A runner that was suspended must not take the experiment back from one that has run it to its end."""
    number = store.create_experiment(config={}).id
    store.acquire_lease(number, "asleep", seconds=-1)
    store.renew_lease(number, "asleep", seconds=-1)  # nobody has taken it yet
    store.acquire_lease(number, "other", seconds=60)
    for by in ("other", "nobody"):
        with pytest.raises(StaleRun, match=f"no longer run by asleep, but by {by}"):
            store.renew_lease(number, "asleep", seconds=60)
        store.release_lease(number, "other")
    assert store.lease_holder(number) is None


def test_unknown_experiments_raise_an_error(store: TrackingStore) -> None:
    calls = (
        lambda: store.experiment(9),
        lambda: store.model_definition(9),
        lambda: store.set_experiment_state(9, State.ACTIVE),
        lambda: store.set_experiment_progress(9, 1.0),
        lambda: store.acquire_lease(9, "h", seconds=1),
        lambda: store.renew_lease(9, "h", seconds=1),
        lambda: store.lease_holder(9),
        lambda: store.release_lease(9, "h"),
        lambda: store.create_trial(9, hparams={}, seed=0),
        lambda: store.trials(9),
        lambda: store.best_validation(9, "loss", smaller_is_better=True),
        lambda: store.checkpoints(experiment_id=9),
    )
    for call in calls:
        with pytest.raises(RecordNotFound, match="no experiment 9 in"):
            call()


def test_listed_experiments_equal_single_ones(store: TrackingStore) -> None:
    """The configs of listed experiments are decoded on first access."""
    single = [store.create_experiment(config=config) for config in ({"a": {"b": [1, None]}}, {})]
    listed = store.experiments(reverse=True)
    assert listed == single
    assert single == listed
    assert repr(listed) == repr(single)
    assert {**listed[0].config} == {"a": {"b": [1, None]}}
    assert listed[0].config.get("none") is None
