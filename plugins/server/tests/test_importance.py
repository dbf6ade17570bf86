"""Importance of hyperparameters: what is measured, and its computation in the background."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator

import pytest
from det_server._importances import Importance, Importances, Pending
from det_server.pages import importance

from det_core.interfaces.records import MetricsReport, State

from .serving import LIMIT, ServedSite

_ECHO = "import json, sys; json.load(sys.stdin); print(json.dumps(dict(explained=0.5, shares=[1.0], errors=[0.25])))"
_TABLE = ([[1.0, 2.0]], [0.5, 0.25])


@pytest.fixture
def importances(request: pytest.FixtureRequest) -> Iterator[Importances]:
    made = Importances([sys.executable, "-S", "-c", request.param])
    yield made
    made.close()


def _wait() -> None:
    for thread in threading.enumerate():
        if thread.name == "importance":
            thread.join(LIMIT)


@pytest.mark.parametrize("importances", [_ECHO], indirect=True)
def test_a_result_is_computed_once_and_kept(importances: Importances, monkeypatch: pytest.MonkeyPatch) -> None:
    assert importances.find("ann", *_TABLE) is Pending.COMPUTING
    _wait()
    monkeypatch.setattr(importances, "_run", None)
    assert importances.find("bob", *_TABLE) == Importance(explained=0.5, shares=[1.0], errors=[0.25])


@pytest.mark.parametrize("importances", ["import time; time.sleep(600)"], indirect=True)
def test_a_result_that_several_wait_for_is_computed_once(importances: Importances) -> None:
    """Otherwise two people who reload its page start any number of processes."""
    for person in ("ann", "bob", "ann", "bob"):
        assert importances.find(person, *_TABLE) is Pending.COMPUTING
        assert importances.find(person, [[3.0]], [1.0]) is Pending.COMPUTING
    assert [thread.name for thread in threading.enumerate()].count("importance") == 1


@pytest.mark.parametrize("importances", [_ECHO], indirect=True)
def test_computations_go_on_after_a_pause(importances: Importances) -> None:
    for number in (1.0, 2.0):
        importances.find("ann", [[number]], [number])
        _wait()
        assert isinstance(importances.find("ann", [[number]], [number]), Importance)


@pytest.mark.parametrize("importances", ["import sys; sys.exit('no memory')"], indirect=True)
def test_a_failure_is_in_the_log_and_not_tried_again(
    importances: Importances, caplog: pytest.LogCaptureFixture
) -> None:
    importances.find("ann", *_TABLE)
    _wait()
    assert importances.find("ann", *_TABLE) is Pending.FAILED
    assert "could not be computed: exit code 1: no memory" in caplog.text


@pytest.mark.parametrize("importances", ["import sys; sys.stdin.read(); input()"], indirect=True)
def test_each_person_waits_for_one_result(importances: Importances, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended = threading.Event(), threading.Event()
    tables: list[str] = []

    def run(text: str) -> str:
        tables.append(text)
        begun.set()
        assert ended.wait(LIMIT)
        return '{"explained": 0, "shares": [], "errors": []}'

    monkeypatch.setattr(importances, "_run", run)
    importances.find("ann", *_TABLE)
    assert begun.wait(LIMIT)
    importances.find("ann", [[3.0]], [1.0])
    importances.find("bob", [[4.0]], [1.0])
    ended.set()
    _wait()
    assert len(tables) == 2 and "4.0" in tables[1]


@pytest.mark.parametrize("importances", ["import time; time.sleep(600)"], indirect=True)
def test_the_end_of_the_server_ends_a_computation(importances: Importances) -> None:
    importances.find("ann", *_TABLE)
    importances.close()
    _wait()
    assert "importance" not in [thread.name for thread in threading.enumerate()]
    assert importances.find("ann", [[3.0]], [1.0]) is Pending.COMPUTING
    assert "importance" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.integration
def test_what_decides_the_value_is_the_most_important() -> None:
    program = pytest.importorskip("det_server._importance_program", exc_type=ImportError)
    chance = random.Random(1)
    decisive = [chance.random() if number % 10 else None for number in range(60)]
    irrelevant = [float(chance.randrange(3)) for _ in decisive]
    values = [10 ** (9 * one) if one is not None else 0.0 for one in decisive]
    found = program.measure_importance([irrelevant, decisive], values)
    assert found["explained"] > 0.8
    assert found["shares"][1] > 0.9 and sum(found["shares"]) == pytest.approx(1)
    assert found["errors"][0] < 0.1
    noise = program.measure_importance([irrelevant, irrelevant], values)
    assert noise["explained"] < 0.2


def test_the_page_learns_why_there_is_no_importance(local: ServedSite, monkeypatch: pytest.MonkeyPatch) -> None:
    store = local.store
    experiment = store.create_experiment(config={"searcher": {"metric": "loss"}}).id
    for number in range(12):
        trial = store.create_trial(experiment, hparams={"lr": number, "name": f"n{number % 2}"}, seed=0).id
        run = store.start_run(trial, allocation_id="a").run_id
        which = {"trial_id": trial, "run_id": run, "group": "validation", "steps_completed": 1}
        store.report_metrics([MetricsReport(**which, metrics={"loss": float(number)})])  # type: ignore[arg-type]
        if number >= 3:
            store.set_trial_state(trial, State.COMPLETED)
    path = f"/data/experiments/{experiment}/importance"
    monkeypatch.setattr(importance, "can_compute", lambda: False)
    assert local.owner.get(path).json["state"] == "missing"
    monkeypatch.setattr(importance, "can_compute", lambda: True)
    assert local.owner.get(path).json == {"trials": 9, "names": ["lr", "name"], "state": "few", "least": 10}
    store.set_trial_state(1, State.ERROR)
    asked = []

    def find(person: str, columns: list[list[float]], values: list[float]) -> Pending:
        asked.append((columns, values))
        return Pending.COMPUTING

    monkeypatch.setattr(local.site.importances, "find", find)
    assert local.owner.get(path).json["state"] == "computing"
    numbers = [0, *range(3, 12)]
    columns = [list(range(10)), [number % 2 for number in numbers]]
    assert asked == [(columns, [float(number) for number in numbers])]


def test_only_the_order_of_values_is_computed_with() -> None:
    """Forests depend on nothing else, and no number is too large for them."""
    assert importance._positions([10**400, None, 1e300, -5, 10**400]) == [2, None, 1, 0, 2]
    assert importance._positions(["sgd", "adam", None, "sgd", 3]) == [1, 0, None, 1, 0]


def test_numbers_of_equal_hashes_are_compared_as_few_times_as_others() -> None:
    """Hyperparameters may be any integers, such as multiples of the modulus of hashes."""
    compared = []

    class Number(int):
        def __hash__(self) -> int:
            return 0

        def __eq__(self, other: object) -> bool:
            compared.append(other)
            return super().__eq__(other)

    assert importance._positions([Number(one) for one in range(500)]) == list(range(500))
    assert len(compared) < 5000
