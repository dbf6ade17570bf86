"""Listings, descriptions, logs and states of experiments and trials, as text and as JSON."""

from __future__ import annotations

import re
import threading
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from det_core.interfaces.records import LogLine, State, SystemMetrics
from det_core.tracking.reading_limits import limited_reading

from .conftest import CONFIG, Det, Record


def test_an_empty_store_has_empty_listings(det: Det) -> None:
    assert "det run" in det("experiment", "list").out
    assert det("experiment", "list", "--json").json == []
    assert det("checkpoint", "list", "--json").json == []


def test_a_corrupt_database_is_named(det: Det, det_home: Path) -> None:
    det_home.mkdir()
    (det_home / "det.db").write_bytes(b"no database" * 1000)
    result = det("experiment", "list")
    assert (result.code, result.out) == (1, "")
    assert str(det_home / "det.db") in result.err


@pytest.mark.parametrize(
    ("command", "expected"),
    {
        "experiment list": "digits",
        "model list": "m2",
        "checkpoint gc --orphans --dry-run": "0 orphans",
        "checkpoint rm best-one --yes": "needed by experiment 4",
    }.items(),
)
def test_commands_work_beside_large_records_of_others(det: Det, trained: Record, command: str, expected: str) -> None:
    large = {"x": "y" * 100_000}
    for number in range(3):
        config = {**CONFIG, "data": large, "searcher": {**CONFIG["searcher"], "source_checkpoint_uuid": "best-one"}}
        trained.store.create_experiment(config=config)
        trained.store.create_model(f"m{number}", metadata=large)
    with limited_reading(250_000):
        found = det(*command.split())
    assert expected in found.out + found.err


def test_experiments_are_listed_newest_first(det: Det, trained: Record) -> None:
    trained.store.create_experiment(config={**CONFIG, "name": "second"})
    header, newest, oldest = det("experiment", "list").out.splitlines()
    assert header.split() == ["ID", "NAME", "STATE", "PROGRESS", "STARTED", "TOOK", "OWNER"]
    assert newest.split()[:3] == ["2", "second", "QUEUED"]
    assert oldest.split()[:3] == ["1", "digits", "COMPLETED"]
    assert [one["id"] for one in det("e", "list", "--limit", 1, "--json").json] == [2]


def test_json_of_a_list_has_dates_and_no_configs(det: Det, trained: Record) -> None:
    (experiment,) = det("experiment", "list", "--json").json
    assert "config" not in experiment
    assert datetime.fromisoformat(experiment["end_time"]).tzinfo


def test_describe_shows_an_experiment(det: Det, trained: Record) -> None:
    result = det("experiment", "describe", 1)
    assert result.code == 0
    assert all(word in result.out for word in ("digits", "COMPLETED", "lr=0.1", "best-one", "last-one"))
    assert "accuracy=0.75" not in result.out
    assert "accuracy=0.75" in det("experiment", "describe", 1, "--metrics").out

    described = det("experiment", "describe", 1, "--metrics", "--json").json
    assert described["config"] == trained.experiment.config
    assert [trial["id"] for trial in described["trials"]] == [1]
    assert [checkpoint["uuid"] for checkpoint in described["checkpoints"]] == ["best-one", "last-one"]
    assert len(described["metrics"]) == 6
    assert "metrics" not in det("experiment", "describe", 1, "--json").json


def test_describe_shows_a_trial(det: Det, trained: Record) -> None:
    result = det("trial", "describe", 1, "--metrics")
    assert all(word in result.out for word in ("hyperparameters.lr", "best-one", "accuracy=0.75"))
    described = det("t", "describe", 1, "--json").json
    assert described["hparams"] == {"lr": 0.1, "nested": {"depth": 2}}


def test_trials_show_where_they_are_and_their_interruptions(det: Det, record: Record) -> None:
    where = "queued (Slurm job 4711; Priority)"
    assert "PLACEMENT" not in det("experiment", "trials", 1).out
    record.store.set_trial_placement(1, 1, where)
    record.store.set_trial_state(1, State.QUEUED)
    record.store.count_interruption(1)
    for command in (("experiment", "trials"), ("experiment", "describe"), ("trial", "describe")):
        assert where in det(*command, 1).out
    assert "interruptions 1\n" in re.sub(" +", " ", det("trial", "describe", 1).out)
    described = det("trial", "describe", 1, "--json").json
    assert (described["placement"], described["interruptions"]) == (where, 1)
    record.store.set_trial_state(1, State.PAUSED)
    assert where not in det("experiment", "trials", 1).out + det("trial", "describe", 1).out


def test_describe_shows_metadata_and_system_metrics(det: Det, record: Record) -> None:
    sample = SystemMetrics(
        trial_id=1, run_id=1, group="cpu", metrics={"local": {"cpu_util_simple": 12.5}}, time=datetime.now(timezone.utc)
    )
    record.store.report_system_metrics([sample])
    record.store.set_trial_metadata(1, 1, {"data": {"version": 3}})
    shown = det("trial", "describe", 1, "--metrics").out
    assert "metadata.data" in shown
    assert '{"local": {"cpu_util_simple": 12.5}}' in shown
    described = det("trial", "describe", 1, "--metrics", "--json").json
    assert described["metadata"] == {"data": {"version": 3}}
    assert described["system_metrics"][0]["metrics"] == {"local": {"cpu_util_simple": 12.5}}


def test_non_finite_numbers_become_text_in_json(det: Det, record: Record) -> None:
    record.report(100, loss=float("nan"), worse=float("inf"))
    metrics = det("trial", "describe", 1, "--metrics", "--json").json["metrics"][0]["metrics"]
    assert metrics == {"loss": "NaN", "worse": "Infinity"}


def test_logs_are_printed_without_control_characters(det: Det, record: Record) -> None:
    record.log("run 1 starts", stdtype="det")
    record.log("\x1b[31mred\x1b[0m")
    record.log("10%\r100%\x07")
    for command in (("trial", "logs", 1), ("experiment", "logs", 1)):
        lines = det(*command).out.splitlines()
        assert [line.partition(" [")[2] for line in lines] == [
            "trial 1] run 1 starts",
            "trial 1] [rank=0] red",
            "trial 1] [rank=0] 100%",
        ]
        assert [line["log"] for line in det(*command, "--json").json][1] == "\x1b[31mred\x1b[0m"


def test_trial_logs_contain_one_trial_only(det: Det, record: Record) -> None:
    record.store.create_trial(record.experiment.id, hparams={}, seed=8, request_id=1)
    record.log("mine")
    assert det("trial", "logs", 2, "--json").json == []
    assert len(det("experiment", "logs", 1, "--json").json) == 1


def after(seconds: float, action: object) -> threading.Timer:
    timer = threading.Timer(seconds, action)  # type: ignore[arg-type]
    timer.start()
    return timer


def test_logs_are_filtered_by_level_and_text(det: Det, record: Record) -> None:
    time = datetime.now(timezone.utc)
    for level, log in (("ERROR", "no loss"), ("WARNING", "Loss is NaN"), ("INFO", "loss 1")):
        values: dict[str, Any] = {"level": level, "log": log, "time": time}
        record.store.add_logs([LogLine(trial_id=1, run_id=1, rank=0, stdtype="stdout", **values)])
    found = det("trial", "logs", 1, "--level", "WARNING", "--search", "LOSS", "--json").json
    assert [(line["level"], line["log"]) for line in found] == [("ERROR", "no loss"), ("WARNING", "Loss is NaN")]


def test_following_logs_ends_with_the_experiment(det: Det, record: Record) -> None:
    record.store.acquire_lease(1, "somebody", seconds=60)
    record.log("first")

    def finish() -> None:
        record.log("last")
        record.end(State.COMPLETED)

    timer = after(0.3, finish)
    assert [line["log"] for line in det("trial", "logs", 1, "-f", "--json").json] == ["first", "last"]
    timer.join()


@pytest.mark.parametrize(
    ("state", "error", "code"), [(State.COMPLETED, None, 0), (State.ERROR, "it broke", 1), (State.CANCELED, None, 1)]
)
def test_wait_returns_the_final_state(det: Det, record: Record, state: State, error: str | None, code: int) -> None:
    record.store.acquire_lease(1, "somebody", seconds=60)
    timer = after(0.3, lambda: record.end(state, error))
    result = det("experiment", "wait", 1)
    timer.join()
    assert result.code == code
    assert state.value in result.out
    assert (error or "") in result.out
    assert det("experiment", "wait", 1, "--json").json["state"] == state.value


def test_wait_ends_when_the_experiment_has_no_runner(det: Det, record: Record) -> None:
    record.store.set_experiment_state(1, State.PAUSED)
    result = det("experiment", "wait", 1)
    assert (result.code, result.out) == (1, "Experiment 1: PAUSED\n")


def test_wait_fails_after_the_timeout(det: Det, record: Record) -> None:
    record.store.acquire_lease(1, "somebody", seconds=60)
    result = det("experiment", "wait", 1, "--timeout", 0.3)
    assert result.code == 1
    assert "0.3 s" in result.err


@pytest.mark.parametrize(
    ("command", "state"),
    [("pause", State.PAUSED), ("cancel", State.STOPPING_CANCELED), ("kill", State.STOPPING_KILLED)],
)
def test_requests_need_a_running_experiment(det: Det, record: Record, command: str, state: State) -> None:
    result = det("experiment", command, 1)
    assert result.code == 1
    assert "nothing is running experiment 1" in result.err
    assert record.store.experiment(1).state is State.ACTIVE

    record.store.acquire_lease(1, "somebody", seconds=60)
    assert det("experiment", command, 1, "--json").json["state"] == state.value
    assert record.store.experiment(1).state is state


def test_a_completed_experiment_is_not_resumed(det: Det, trained: Record) -> None:
    result = det("experiment", "resume", 1)
    assert result.code == 1
    assert "COMPLETED" in result.err
