"""Filters and sort orders by any value of experiments and trials, on every database."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from det_core.errors import CallTooLarge, FilterError
from det_core.interfaces.records import CodeVersion, MetricsReport, State, TrialOrder
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store
from det_core.tracking._filter_language import LONGEST_FILTER, Comparison, Every, Not, Some, parse_filter
from det_core.tracking._postgresql import Postgresql
from det_core.tracking._sqlite import Sqlite


def _add_trial(store: TrackingStore, experiment: int, hparams: Mapping[str, Any], **accuracies: float) -> int:
    """Record a trial with validations, whose steps are the digits of the keywords."""
    trial = store.create_trial(experiment, hparams=hparams, seed=1)
    run = store.start_run(trial.id, allocation_id="a").run_id
    for name, value in accuracies.items():
        step = int(name.strip("abcdefghijklmnopqrstuvwxyz"))
        for group, metrics in (
            ("training", {"loss": 1 - value, "grad/norm": 2.0}),
            ("validation", {"accuracy": value}),
        ):
            store.report_metrics(
                [MetricsReport(trial_id=trial.id, run_id=run, group=group, steps_completed=step, metrics=metrics)]
            )
    return trial.id


@pytest.fixture
def search(store: TrackingStore) -> tuple[int, list[int]]:
    config = {
        "name": "digits",
        "project": "vision",
        "labels": ["baseline", 'a "b"'],
        "searcher": {"metric": "accuracy", "smaller_is_better": False},
    }
    experiment = store.create_experiment(config=config, owner="ada", code_version=CodeVersion(commit="1a2b" * 10)).id
    values = [
        _add_trial(store, experiment, {"lr": 0.1, "optimizer": {"name": "adam", "lr": 1e-4}}, at1=0.5, at2=0.4),
        _add_trial(store, experiment, {"lr": 0.001, "nesterov": True, "bad": float("nan")}, at1=0.95),
        _add_trial(store, experiment, {"lr": "auto", "optimizer": {"name": "sgd"}}),
        _add_trial(store, experiment, {"width": 64, "größe": 3, 'a"b': 1, "a.b": 7, "x'y": 5, "emoji": "\U0001f680"}),
    ]
    store.set_trial_state(values[2], State.ERROR)
    return experiment, values


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("lr < 0.01", [1]),
        ("lr<=1e-3", [1]),
        ("lr = 0.1 or lr = auto", [0, 2]),
        ("lr != 0.1", [1]),
        ("not lr < 0.01", [0, 2, 3]),
        ("not (lr < 0.01 or width > 1)", [0, 2]),
        ("lr < 1 and accuracy > 0.9", [1]),
        ("optimizer.lr < 0.01", [0]),
        ("optimizer.name = 'sgd'", [2]),
        ("hp.optimizer.name ~ AD", [0]),
        ("nesterov = true", [1]),
        ("accuracy < 0.45", [0]),
        ("validation.accuracy < 0.45", [0]),
        ("training.loss > 0.5", [0]),
        ("loss > 0.5", [0]),
        ("grad/norm = 2", [0, 1]),
        ("best >= 0.5", [0, 1]),
        ("latest < 0.5", [0]),
        ("batches = 2", [0]),
        ("state = error", [2]),
        ("state != ERROR and restarts = 0", [0, 1, 3]),
        ("state = Failed", [2]),
        ("state != waiting", [2]),
        ("state ~ fail", [2]),
        ("width = 64 and größe = 3", [3]),
        ("a.b = 7", [3]),
        ("`x'y` = 5", [3]),
        ("emoji ~ '\U0001f680'", [3]),
        ("bad = 1 or nothing.at.all > 0", []),
        ("lr ~ '%'", []),
        ("width = '64'", []),
    ],
)
def test_a_filter_selects_trials(
    store: TrackingStore, search: tuple[int, list[int]], where: str, expected: list[int]
) -> None:
    experiment, ids = search
    found = [one.trial.id for one in store.trial_results(experiment, where=where)]
    assert found == [ids[index] for index in expected]
    assert store.count_trials(experiment, where=where) == len(expected)


@pytest.mark.parametrize(
    ("where", "matches"),
    [
        ("name ~ DIG", True),
        ("project = vision and workspace != x", False),
        ("project = vision and owner = ada", True),
        ("label = baseline", True),
        ("label = base", False),
        ("label = 'a \"b\"'", True),
        ("label != baseline and owner = ada", False),
        ("label ~ base", True),
        ("state = queued and owner = ada", True),
        ("lr < 0.01 and accuracy > 0.9", True),
        ("lr = 0.1 and accuracy > 0.9", False),
        ("best > 0.9 and name = digits", True),
        ("commit ~ 1A2B", True),
        ("commit = 1a2b", False),
        ("best < 0.45", False),
    ],
)
def test_a_filter_selects_experiments_by_one_of_their_trials(
    store: TrackingStore, search: tuple[int, list[int]], where: str, matches: bool
) -> None:
    store.create_experiment(config={"name": "other"}, code_version=CodeVersion(commit="c" * 40))
    assert [one.id for one in store.experiments(where=where)] == [search[0]] * matches
    assert store.count_experiments(where=where) == int(matches)


def test_values_that_a_database_cannot_read_keep_no_other_trial_from_a_list(store: TrackingStore) -> None:
    experiment = store.create_experiment(config={}).id
    for odd in ("\0", "\ud800", "\\u0000", "\\\ud83d\\\ude00", float("inf"), 10**400, {"a": [float("nan"), "NaN"]}):
        _add_trial(store, experiment, {"odd": odd, "lr": 1})
    _add_trial(store, experiment, {"lr": 2})
    assert len(store.trial_results(experiment, where="lr = 2 or odd = 1 or odd = 'x' or odd.a = 2", sort_by="odd")) == 1


def test_what_an_experiment_without_trials_lacks_compares_as_false(store: TrackingStore) -> None:
    empty = store.create_experiment(config={"name": "empty"}).id
    assert [one.id for one in store.experiments(where="not lr < 1")] == [empty]
    assert not store.experiments(where="lr < 1")


def test_trials_are_sorted_by_any_value_and_paged(store: TrackingStore, search: tuple[int, list[int]]) -> None:
    experiment, (first, second, third, fourth) = search

    def found(sort_by: str, **options: Any) -> list[int]:
        results = store.trial_results(experiment, sort_by=sort_by, order=TrialOrder.BEST, **options)
        return [one.trial.id for one in results]

    assert found("lr") == [second, first, third, fourth]
    assert found("lr", reverse=True) == [first, second, third, fourth]
    assert found("accuracy") == [first, second, third, fourth]
    assert found("accuracy", reverse=True, limit=1) == [second]
    assert found("optimizer.name", limit=2, offset=1) == [third, second]
    assert found("lr", where="accuracy > 0.1", limit=1, offset=1) == [first]


def test_experiments_are_sorted_by_the_extreme_of_their_trials(store: TrackingStore) -> None:
    ids = [store.create_experiment(config={"name": name}).id for name in ("a", "b", "c")]
    for experiment, rates in zip(ids, ([0.1, 0.5], [0.2, 0.3], []), strict=True):
        for rate in rates:
            _add_trial(store, experiment, {"lr": rate})
    assert [one.id for one in store.experiments(sort_by="lr")] == ids
    assert [one.id for one in store.experiments(sort_by="lr", reverse=True, limit=2)] == ids[:2]
    assert [one.id for one in store.experiments(sort_by="name", reverse=True)] == ids[::-1]


def test_a_sort_key_that_nothing_has_is_refused_with_the_names_that_exist(
    store: TrackingStore, search: tuple[int, list[int]]
) -> None:
    expected = r"no trial has 'acuracy'; expected one of best, .*, lr, .*; did you mean 'accuracy'\?"
    for read in (partial(store.trial_results, search[0]), store.experiments):
        with pytest.raises(FilterError, match=expected):
            read(sort_by="acuracy")
        assert read(sort_by="bad") and read(sort_by="größe") and read(sort_by="training.loss")
    assert store.experiments(sort_by="started", reverse=True)
    assert not store.trial_results(store.create_experiment(config={}).id, sort_by="acuracy")


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("", "position 1, the end: expected a name"),
        ("lr << 3", "position 5, '<': expected a number, a word or a text in quotes"),
        ("lr 3", "position 4, '3': expected one of <= >= != = < > ~"),
        ("(lr < 3", "position 8, the end: expected and, or, or \\)"),
        ("lr < 3 lr", "position 8, 'lr': expected and, or, or the end"),
        ("lr < 3 and", "position 11, the end: expected a name"),
        ("lr < 'x", 'position 6, "\'": expected a number'),
        ("lr < 0.1.2 ; drop", "position 12, ';': expected and"),
        ("not " * 30 + "a = 1", "at most 20 levels"),
        ("(" * 30 + "a = 1" + ")" * 30, "at most 20 levels"),
        (" or ".join(["a = 1"] * 21), "at most 20 comparisons"),
        ("a" * (LONGEST_FILTER + 1), "at most 1000"),
    ],
)
def test_an_error_names_the_position_and_what_was_expected(where: str, message: str) -> None:
    with pytest.raises(FilterError, match=message):
        parse_filter(where)


def test_and_binds_stronger_than_or() -> None:
    a, b, c = (Comparison(name, "=", "1", 1.0, position) for name, position in (("a", 5), ("b", 14), ("c", 30)))
    assert parse_filter("a = 1 or b = 1 and not (c == 1)") == Some([a, Every([b, Not(c)])])


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("state = BROKEN", r"'BROKEN': expected one of QUEUED \(waiting\), .* PAUSED, .* ERROR \(failed\);"),
        ("state < failed", "expected =, != or ~ before it"),
        ("best = high", "a number"),
        ("best ~ 3", "a number"),
        ("label < x", "!="),
        ("a." * 21 + "b = 1", "too long"),
    ],
)
def test_a_constant_of_the_wrong_type_is_an_error(store: TrackingStore, where: str, message: str) -> None:
    with pytest.raises(FilterError, match=message):
        store.experiments(where=where)


def test_a_text_to_look_for_is_limited(store: TrackingStore) -> None:
    with pytest.raises(ValueError, match="at most 200"):
        store.experiments(where=f"name ~ {'a' * 201}")


@pytest.mark.integration
def test_a_filter_that_takes_too_long_is_given_up(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for database in (Sqlite, Postgresql):
        monkeypatch.setattr(database, "most_seconds", 0.02)
    terms = " or ".join(f"missing{number} = {number}" for number in range(20))
    with open_store(url) as store:
        experiment = store.create_experiment(config={}).id
        for number in range(300):
            store.create_trial(experiment, hparams={"text": "x" * 5000}, seed=number)
        started = time.monotonic()
        with pytest.raises(CallTooLarge, match=r"more than 0\.02 s"):
            store.trial_results(experiment, where=terms)
        assert time.monotonic() - started < 10
        assert len(store.trial_results(experiment)) == 300  # the limit has ended with its statement
