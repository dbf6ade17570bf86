"""Export of tables as CSV."""

from __future__ import annotations

import asyncio
import csv
import gc
import io
import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime, timezone
from typing import Any

import pytest
from det_server import _admitted_sending, _http_server
from det_server._csv_export import MAX_EXPORTS_PER_PERSON, csv_response
from starlette.responses import StreamingResponse

from det_core.interfaces.records import MetricsReport, State
from det_core.interfaces.server_store import Action

from .serving import ServedSite, wait_for


async def _text(*rows: list[object], columns: tuple[str, ...] = ("a", "b")) -> str:
    response = csv_response("x.csv", columns, rows)
    assert isinstance(response, StreamingResponse)
    return b"".join([bytes(piece) async for piece in response.body_iterator]).decode()


async def _pieces(response: StreamingResponse) -> list[object]:
    return [piece async for piece in response.body_iterator]


def _rows(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+cmd", "'+cmd"),
        ("-x", "'-x"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t=1"),
        ("\r=1", "'\r=1"),
        ("＝1", "'＝1"),  # noqa: RUF001
        ("-1.5", "-1.5"),
        (-1.5, "-1.5"),
        ("plain", "plain"),
        (None, ""),
        (State.ERROR, "ERROR"),
        (["a", "=b"], "a, =b"),
        (["=b", "a"], "'=b, a"),
        ("a\0b", "ab"),
        (datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=timezone.utc), "2026-01-02T03:04:05+00:00"),
        ('quoted "text", with\nlines', 'quoted "text", with\nlines'),
    ],
)
def test_formulas_are_escaped_and_numbers_stay(value: object, cell: str) -> None:
    assert _rows(asyncio.run(_text([value, 1])))[1] == [cell, "1"]


@pytest.mark.parametrize("number", [0, 1, 499, 500, 501, 1000, 1001])
def test_long_tables_are_sent_in_parts_without_a_gap(number: int) -> None:
    rows = [[each, "x"] for each in range(number)]
    response = csv_response("x.csv", ("a", "b"), rows)
    assert isinstance(response, StreamingResponse)
    assert len(asyncio.run(_pieces(response))) == number // 500 + 1
    assert _rows(asyncio.run(_text(*rows))) == [["a", "b"], *([str(each), "x"] for each in range(number))]


def test_names_of_columns_are_escaped_too() -> None:
    assert _rows(asyncio.run(_text(columns=("=a", "b"))))[0] == ["'=a", "b"]


def test_exports_of_hostile_records_have_no_formula(local: ServedSite) -> None:
    store = local.store
    experiment = store.create_experiment(config={"name": "=HYPERLINK(1)", "labels": ["@x"]}, owner="+me").id
    store.create_trial(experiment, hparams={"=cmd()": "=1+1", "lr": -0.5}, seed=1)
    store.create_model("-model", description="=1", owner="@me")
    for path in ("/experiments.csv", f"/experiments/{experiment}/trials.csv", "/models.csv"):
        answer = local.owner.get(path)
        assert answer.headers["content-type"].startswith("text/csv")
        assert answer.headers["content-disposition"].startswith("attachment;")
        rows = _rows(answer.text)
        assert len(rows) == 2
        for cell in (cell for row in rows for cell in row):
            assert not cell.startswith(("=", "+", "@")), cell
            assert not cell.startswith("-") or float(cell) < 0
    assert "'=cmd()" not in rows[0]  # models
    assert "-0.5" in local.owner.get(f"/experiments/{experiment}/trials.csv").text


def test_chosen_trials_are_exported(local: ServedSite) -> None:
    experiment = local.store.create_experiment(config={"name": "x"}).id
    ids = [local.store.create_trial(experiment, hparams={"lr": number}, seed=1).id for number in range(3)]
    for query, expected in ((f"?trials={ids[2]},{ids[0]}", [ids[0], ids[2]]), ("?trials=", []), ("", ids)):
        rows = _rows(local.owner.get(f"/experiments/{experiment}/trials.csv{query}").text)[1:]
        assert sorted(int(row[0]) for row in rows) == expected
    assert local.owner.get(f"/experiments/{experiment}/trials.csv?trials=x").status == 400


def test_metrics_are_exported_as_recorded(local: ServedSite) -> None:
    store = local.store
    trial = store.create_trial(store.create_experiment(config={"name": "x"}).id, hparams={}, seed=1)
    run = store.start_run(trial.id, allocation_id="a").run_id
    values = [0.1 + 0.2, 1e-300, 12345678901234]
    for step, value in enumerate(values, 1):
        report = MetricsReport(
            trial_id=trial.id, run_id=run, group="training", steps_completed=step, metrics={"x": value}
        )
        store.report_metrics([report])
    rows = _rows(local.owner.get(f"/trials/{trial.id}/metrics.csv").text)
    assert [float(row[3]) for row in rows[1:]] == values
    curve = _rows(local.owner.get(f"/data/curves.csv?trials={trial.id}&group=training&metric=x").text)
    assert [row[:2] for row in curve[1:]] == [[str(trial.id), str(step)] for step in (1, 2, 3)]


def test_an_export_ends_with_the_rights_of_its_person(team: ServedSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read while it is sent, for as long as its client likes."""
    monkeypatch.setattr(_admitted_sending, "ADMISSION_SECONDS", 0)
    trial = team.store.create_trial(team.store.create_experiment(config={}).id, hparams={}, seed=1).id

    def read_reports(trial_id: int) -> Iterator[MetricsReport]:
        for step in range(2000):
            if step == 1000:
                team.store.edit_user("vic", active=False)
            yield MetricsReport(trial_id=trial_id, run_id=1, group="training", steps_completed=step, metrics={"x": 0.5})

    vic = team.program("vic")
    monkeypatch.setattr(team.store, "metrics", read_reports)
    assert _rows(vic.get(f"/trials/{trial}/metrics.csv").text)[-1][1] == "999"


@pytest.fixture
def endless_export(served_team: ServedSite, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the path of an export without an end. The server ends after all of them."""
    trial = served_team.store.create_trial(served_team.store.create_experiment(config={}).id, hparams={}, seed=1).id
    report = MetricsReport(trial_id=trial, run_id=1, group="training", steps_completed=1, metrics={"x": "y" * 10_000})
    under_way: list[int] = []

    def read_reports(trial_id: int) -> Iterator[MetricsReport]:
        under_way.append(trial_id)
        try:
            yield from itertools.repeat(report)
        finally:
            under_way.pop()

    monkeypatch.setattr(served_team.store, "metrics", read_reports)
    yield f"/trials/{trial}/metrics.csv"
    assert wait_for(lambda: gc.collect() >= 0 and not under_way)  # they are parts of reference cycles


@pytest.mark.integration
def test_one_person_has_a_few_exports_at_a_time(served_team: ServedSite, endless_export: str) -> None:
    """Each has a part of its table in memory, and clients read as slowly as they like."""
    vic, ann = served_team.program("vic"), served_team.program("ann")
    with ExitStack() as unread:
        for _ in range(MAX_EXPORTS_PER_PERSON):
            unread.enter_context(vic.stream(endless_export))
        refused = vic.get("/models.csv")
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert ann.get("/models.csv").status == 200
    assert wait_for(lambda: vic.get("/models.csv").status == 200)


@pytest.mark.integration
def test_clients_that_do_not_read_their_answers_are_dropped(
    served_team: ServedSite, endless_export: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then, the answers are in memory, also if a person has lost access."""
    monkeypatch.setattr(_http_server, "STALL_SECONDS", 0.5)
    vic = served_team.program("vic")
    with ExitStack() as unread:
        for _ in range(MAX_EXPORTS_PER_PERSON):
            unread.enter_context(vic.stream(endless_export))
        assert wait_for(lambda: vic.get("/models.csv").status == 200)


@pytest.mark.parametrize("path", ["/experiments.csv", "/models.csv", "/audit.csv"])
def test_an_export_has_few_rows_in_memory(team: ServedSite, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr("det_server._csv_export._ROWS_AT_ONCE", 2)
    monkeypatch.setattr("det_server.pages.accounts._ACTIONS_AT_ONCE", 2)
    root, limits = team.log_in("root"), list[int | None]()
    for number in range(5):
        team.store.create_experiment(config={"name": f"x{number}"})
        team.store.create_model(f"x{number}")
        team.store.record_action(Action("root", f"x{number}"))
    for method in ("experiments", "models", "actions"):
        read = getattr(team.store, method)

        def note(*, read: Any = read, limit: int | None = None, **options: Any) -> Any:
            limits.append(limit)
            return read(limit=limit, **options)

        monkeypatch.setattr(team.store, method, note)
    text = root.get(path).text
    assert all(f"x{number}" in text for number in range(5))
    assert len(limits) > 2 and set(limits) == {2}


def test_an_export_that_cannot_be_made_says_so(local: ServedSite) -> None:
    assert local.owner.get(f"/experiments.csv?name={'x' * 201}").status == 400
