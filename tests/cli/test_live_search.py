"""Output of a search, with a live area on a terminal, a line for each event in a pipe, and a closing summary."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from rich.console import Console

from det_core.cli.render import experiment_progress
from det_core.cli.render.experiment_summary import summarize_experiment, summary_lines
from det_core.cli.render.live_search import LiveSearch
from det_core.cli.render.printing import print_json
from det_core.cli.render.search_watcher import SearchWatcher
from det_core.core._progress_line import Pace
from det_core.interfaces.records import MetricsReport, NewTrial, State, TrialUpdate, is_stopped_early
from det_core.interfaces.tracking import TrackingStore

from .conftest import Det

CONFIG: dict[str, Any] = {
    "name": "asha",
    "searcher": {
        "name": "adaptive_asha",
        "metric": "accuracy",
        "smaller_is_better": False,
        "max_length": {"batches": 400},
    },
}


class Search:
    """Writer of the records that the runner of a search and its trials produce."""

    def __init__(self, store: TrackingStore, **searcher: Any) -> None:
        self.store = store
        config = {**CONFIG, "searcher": {**CONFIG["searcher"], **searcher}}
        self.id = store.create_experiment(config=config).id

    def add(self, lr: float, state: State = State.ACTIVE, hidden: int = 64) -> int:
        number = len(self.store.trials(self.id))
        new = NewTrial(
            hparams={"optimizer": {"lr": lr}, "hidden": hidden, "constant": 1}, seed=0, source_checkpoint=None
        )
        self.order(TrialUpdate(request_id=number, state=State.PAUSED, new=new))
        (trial,) = self.order(TrialUpdate(request_id=number, state=State.QUEUED, ordered=number, length=100))
        self.store.start_run(trial, allocation_id="a")
        if state.final:
            self.order(TrialUpdate(request_id=number, state=state))
        else:
            self.store.set_trial_state(trial, state)
        return trial

    def order(self, *updates: TrialUpdate) -> list[int]:
        return [trial.id for trial in self.store.record_search(self.id, [], updates)]

    def report(self, trial: int, step: int, accuracy: float) -> None:
        metrics = {"accuracy": accuracy, "other": 1}
        report = MetricsReport(trial_id=trial, run_id=1, group="validation", steps_completed=step, metrics=metrics)
        self.store.report_metrics([report])


@pytest.fixture
def search(store: TrackingStore) -> Search:
    """Record a search. Trial 1 was promoted and is the best, 2 ended, 3 waits, 4 failed, 5 runs and 6 is paused."""
    made = Search(store)
    for lr, state in ((0.1, "ACTIVE"), (0.2, "COMPLETED"), (0.3, "QUEUED"), (0.4, "ERROR"), (0.5, "ACTIVE")):
        made.add(lr, State(state))
    made.add(0.6)
    made.report(1, 100, 0.75)
    made.order(TrialUpdate(request_id=0, state=State.ACTIVE, ordered=9, length=400))
    made.report(1, 200, 0.9)
    made.report(2, 100, 0.5)
    made.report(5, 50, 0.6)
    made.order(TrialUpdate(request_id=5, state=State.PAUSED))
    store.set_trial_progress(1, 1, 0.5)
    store.set_experiment_progress(made.id, 0.25)
    return made


def test_each_event_is_printed_in_one_line(search: Search, capsys: pytest.CaptureFixture[str]) -> None:
    store, watcher = search.store, experiment_progress.create_watcher(search.store, search.id)
    assert isinstance(watcher, SearchWatcher)
    watcher.poll()
    with experiment_progress.show_progress(watcher):
        search.report(5, 60, 0.7)
        store.set_trial_state(5, State.COMPLETED)
        store.count_restart(1)
        store.count_interruption(1)
        search.add(0.7)
        store.report_metrics(
            [MetricsReport(trial_id=1, run_id=1, group="training", steps_completed=300, metrics={"loss": 1.0})]
        )
        store.set_trial_state(3, State.ERROR)
    assert capsys.readouterr().out.splitlines() == [
        "trial 1: a run failed (1 so far); to see why: det trial logs 1",
        "trial 1: a run was interrupted (1 so far); to see why: det trial logs 1",
        "trial 3: failed after 0 batches; to see why: det trial logs 3",
        "trial 5: batch 60 validation accuracy=0.7",
        "trial 5: stopped early after 60 batches, best accuracy=0.7",
    ]
    assert watcher.poll() == []


def test_trials_that_the_search_stopped_early_differ_from_completed_ones(search: Search, det: Det) -> None:
    search.order(TrialUpdate(request_id=0, state=State.COMPLETED))
    states = [(1, "COMPLETED", False), (2, "COMPLETED (stopped early)", True), (4, "ERROR", False)]
    found = {one["id"]: one["stopped_early"] for one in det("experiment", "trials", search.id, "--json").json}
    for trial, state, stopped in states:
        assert re.search(rf"^state +{re.escape(state)}$", det("trial", "describe", trial).out, re.MULTILINE)
        assert re.search(rf"^{trial} +{re.escape(state)} ", det("experiment", "trials", search.id).out, re.MULTILINE)
        assert found[trial] is stopped


@pytest.mark.parametrize(
    ("searcher", "length", "expected"),
    [
        ({"max_length": 400}, 100, True),
        ({"max_length": {"epochs": 4}}, 4, False),
        ({"num_rounds": 3, "length_per_round": {"batches": 10}}, 20, True),
        ({"num_rounds": 3, "length_per_round": {"batches": 10}}, 30, False),
        ({"max_length": 400}, None, False),
        ({}, 5, False),
    ],
)
def test_a_shorter_training_than_that_of_the_search_was_stopped_early(
    store: TrackingStore, searcher: dict[str, Any], length: int | None, expected: bool
) -> None:
    trial = store.create_trial(store.create_experiment(config={}).id, hparams={}, seed=0)
    completed = replace(trial, state=State.COMPLETED, searcher_length=length)
    assert is_stopped_early(completed, {"searcher": searcher}) is expected
    assert not is_stopped_early(trial, {"searcher": searcher})


def test_polling_takes_a_small_share_of_the_time(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    now, looks = 0.0, []
    monkeypatch.setattr(experiment_progress.time, "monotonic", lambda: now)

    def look() -> None:
        nonlocal now
        looks.append(round(now, 1))
        now += 0.1

    tick = experiment_progress._throttle_updates(look)
    while now < 10:
        tick()
        now += 0.2
    assert 4 <= len(looks) <= 6
    assert min(later - earlier for earlier, later in pairwise(looks)) >= 2


def test_the_watcher_counts_rungs_and_finds_the_best_trial(search: Search) -> None:
    watcher = SearchWatcher(search.store, search.id)
    assert (watcher.best, watcher.rungs) == (None, {})
    watcher.poll()
    assert watcher.rungs == {100: (3, 6), 400: (0, 1)}
    assert watcher.best
    assert watcher.best.trial.id == 1


def frame(search: Search, width: int, height: int, *, status: str = "", progress: Sequence[float] = ()) -> list[str]:
    """Return the last lines on the screen, without control sequences."""
    screen = io.StringIO()
    console = Console(
        file=screen, force_terminal=True, width=width, height=height, color_system=None, legacy_windows=False
    )
    watcher = SearchWatcher(search.store, search.id)
    watcher.poll()
    live = LiveSearch(watcher, lambda: status, console)
    seconds = iter(range(1000))
    live._pace = Pace(clock=lambda: next(seconds))
    with live:
        for share in progress:
            search.store.set_experiment_progress(search.id, share)
            live.update()
        before = screen.tell()
        live.update()
        drawn = screen.getvalue()[before:]
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn)
    return [line.rstrip() for line in re.split(r"[\r\n]+", plain) if line.strip()]


def test_the_live_area_shows_the_search(search: Search) -> None:
    lines = frame(search, 120, 24, progress=(0.1, 0.2, 0.3, 0.4))
    assert lines[0].startswith("search")
    assert lines[0].endswith("40%  0:00:06 left adaptive_asha")
    assert lines[1:] == [
        "trials  2 running  1 waiting  1 paused  1 failed  1 stopped early",
        "best    accuracy=0.9 at batch 200 of trial 1  optimizer.lr=0.1",
        "rungs   100: 3/6  400: 0/1  (batches: trials that reached / will reach it)",
        "trial  batches  trained     accuracy  hyperparameters",
        "1      200      50% of 400  0.9       optimizer.lr=0.1",
        "5      50       0% of 100   0.6       optimizer.lr=0.5",
    ]


def test_the_live_area_shows_where_trials_are(search: Search) -> None:
    search.store.set_trial_placement(3, 1, "queued (Slurm job 4713; Priority)")
    search.store.set_trial_placement(1, 1, "running on n1 (Slurm job 4711)")
    search.store.set_trial_placement(5, 1, "interrupted (preempted), starts again in 20 s")
    lines = frame(search, 140, 24)
    assert lines[2] == "waits   trial 3: queued (Slurm job 4713; Priority)  and 1 more"
    assert [" ".join(line.split()) for line in lines[-2:]] == [
        "1 200 50% of 400 0.9 running on n1 (Slurm job 4711) optimizer.lr=0.1",
        "5 50 0% of 100 0.6 interrupted (preempted), starts again in 20 s optimizer.lr=0.5",
    ]


@pytest.mark.parametrize(
    ("searcher", "unit"),
    [
        ({"max_length": 400}, ""),
        ({"max_length": None, "unit": "epochs", "options": {"batches": 3}}, "epochs: "),
        ({"max_length": None, "length_per_round": {"records": 100}}, "records: "),
    ],
)
def test_the_live_area_shows_the_unit_of_rungs_if_there_is_one(
    store: TrackingStore, searcher: dict[str, Any], unit: str
) -> None:
    search = Search(store, **searcher)
    search.add(0.1)
    search.add(0.2)
    search.order(TrialUpdate(request_id=0, state=State.ACTIVE, ordered=2, length=400))
    (rungs,) = [line for line in frame(search, 120, 24) if line.startswith("rungs")]
    assert rungs.endswith(f"  ({unit}trials that reached / will reach it)")


def test_values_that_look_like_markup_are_shown_unchanged(search: Search) -> None:
    """A hyperparameter such as ``[/data]`` ended ``det run`` with a MarkupError, and ``[relu]`` was hidden."""
    new = NewTrial(hparams={"path": "[/data]", "layer": "[relu]"}, seed=0, source_checkpoint=None)
    search.order(TrialUpdate(request_id=99, state=State.PAUSED, new=new))
    search.order(TrialUpdate(request_id=99, state=State.ACTIVE, ordered=1, length=100))
    lines = frame(search, 120, 24, status="[/stopping]")
    assert any(line.endswith("path=[/data] layer=[relu]") for line in lines)
    assert "[/stopping]" in "".join(lines)


@pytest.mark.parametrize("metric", ["loss[/val]", "f1[macro]"])
def test_metrics_that_look_like_markup_are_shown_unchanged(store: TrackingStore, metric: str) -> None:
    search = Search(store, metric=metric)
    search.add(0.1)
    store.report_metrics(
        [MetricsReport(trial_id=1, run_id=1, group="validation", steps_completed=5, metrics={metric: 0.5})]
    )
    lines = frame(search, 120, 24)
    assert any(line.startswith(f"best    {metric}=0.5") for line in lines)
    assert any(line.split()[:4] == ["trial", "batches", "trained", metric] for line in lines)


@pytest.mark.integration
def test_the_live_area_fits_the_terminal(search: Search) -> None:
    for number in range(60):
        search.add(1 / (number + 1), hidden=number)
        search.order(TrialUpdate(request_id=number, state=State.ACTIVE, ordered=1, length=100 * number + 1))
    for width, height in ((40, 8), (80, 24), (200, 50)):
        lines = frame(search, width, height, status="stopping")
        assert len(lines) < height
        assert max(map(len, lines)) <= width
        assert "stopping" in "".join(lines)
        assert re.fullmatch(r"and \d+ more", lines[-1]) is not None if height < 50 else len(lines) > 40


def test_the_live_area_says_that_the_experiment_starts(store: TrackingStore) -> None:
    assert frame(Search(store), 80, 24)[1] == "trials  experiment 1 starts"


def test_the_closing_summary_names_the_best_trials(search: Search, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(6):
        search.report(search.add(0.01 * number, State.COMPLETED), 10, number / 100)
    search.store.set_experiment_state(search.id, State.COMPLETED)
    result = summarize_experiment(search.store, search.id)
    lines = list("\n".join(summary_lines(result)).splitlines())
    assert lines[0].startswith("Experiment 1 completed: 12 trials")
    assert lines[1:4] == [
        "  best accuracy=0.9 at batch 200 of trial 1",
        "    with optimizer.lr=0.1 hidden=64 constant=1",
        "  the best trials (all: det experiment trials 1 --sort-by best)",
    ]
    assert [line.split()[0] for line in lines[4:10]] == ["TRIAL", "1", "5", "2", "12", "11"]
    print_json(result)
    assert '"top": [' in capsys.readouterr().out
