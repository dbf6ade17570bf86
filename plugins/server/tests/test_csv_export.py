"""Export of tables as CSV."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import Iterator
from datetime import datetime, timezone

import pytest
from det_server import _admitted_sending
from det_server._csv_export import csv_response
from starlette.responses import StreamingResponse

from det_core.interfaces.records import MetricsReport, State

from .serving import ServedSite


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
