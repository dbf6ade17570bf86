"""Preemption at the end of the loop, and files with its progress."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import det_core as det
from det_core.config import Length
from det_core.errors import CheckpointCorrupt, InvalidTrial
from det_core.interfaces.framework import Metrics
from det_core.tracking import open_store
from det_core.trial import Progress, TrainingPlan, TrialContext, TrialLoop

from .test_slots import Share

np = pytest.importorskip("numpy")


class Asked(Share):
    """Adapter whose process receives a stop request after a batch. It still finishes its validation."""

    asked_after: int

    def train(self, batches: int, stop: Callable[[], bool]) -> Sequence[Metrics]:
        rows: list[Metrics] = []
        while len(rows) < batches:
            rows += super().train(1, stop)
            if self.count == self.asked_after:
                signal.raise_signal(signal.SIGTERM)
            if stop():
                break
        return rows


@pytest.mark.parametrize(("asked_after", "trained", "left_early"), [(7, 7, True), (10, 10, False)])
def test_preemption_is_acknowledged_unless_the_trial_is_done(asked_after: int, trained: int, left_early: bool) -> None:
    with det.core.init() as core:
        context = TrialContext.from_core(core)
        adapter = Asked(context, lambda _: None, lambda: None)
        adapter.asked_after = asked_after
        TrialLoop(adapter, core, context, plan=TrainingPlan(length=Length.parse({"epochs": 2}))).run()
        assert adapter.count == trained
        assert core._store.run(core.trial.trial_id, 1).preemption_acknowledged is left_early


@pytest.mark.parametrize(("records", "named"), [(0, False), (20, False), (23, False), (60, True)])
def test_an_epoch_that_the_config_gives_another_length_is_named(
    records: int, named: bool, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"records_per_epoch": records, "hyperparameters": {"global_batch_size": 4}, "searcher": {"max_length": 1}}
    with det.core.init(config=config) as core:
        context = TrialContext.from_core(core)
        TrialLoop(Share(context, lambda _: None, lambda: None), core, context)
    assert ["records_per_epoch is 60, which is 15 batches" in message for message in caplog.messages] == [True] * named


class Maps(Share):
    """Adapter with a metric of many elements, which is asked to stop between two reports in its first run."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args, lambda _: None, lambda: None)

    def train(self, batches: int, stop: Callable[[], bool]) -> Sequence[Metrics]:
        rows: list[Metrics] = []
        while len(rows) < batches and not (rows and stop()):
            self.count += 1
            if self.count == 130:
                signal.raise_signal(signal.SIGTERM)
            rows.append({"loss": 1.0, "map": np.linspace(0, self.count, 16384).reshape(8, 2048)})
        return rows

    def load(self, path: Path, *, batches_trained: int) -> None:
        self.count = batches_trained


@pytest.mark.integration
def test_arrays_are_trained_to_the_end_and_recorded_as_summaries(det_home: Path) -> None:
    """The numbers of all batches would exceed the limit of a report."""
    plan = TrainingPlan(length=Length.parse({"batches": 200}), reporting=Length.parse(100))
    runs = []
    for _ in range(2):
        with det.core.init() as core:
            adapter = Maps(TrialContext.from_core(core))
            latest = runs[0][1].saved_ids[0] if runs else None
            TrialLoop(adapter, core, adapter.context, plan=plan, latest=latest).run()
        runs.append((list(open_store().metrics(core.trial.trial_id, group="training")), adapter))
    [before], _ = runs[0]
    [after], resumed = runs[1]
    assert before.metrics == {"loss": 1.0, "map": pytest.approx(25.25)}
    assert (before.batch_metrics or ())[9] == {"loss": 1.0, "map": {"count": 16384, "min": 0, "max": 10, "mean": 5}}
    [(_, rows)] = resumed.reports
    assert np.shape(rows[0]["map"]) == (8, 2048)
    assert after.metrics == {"loss": 1.0, "map": pytest.approx(75.25)}
    assert [row["map"]["max"] for row in after.batch_metrics or ()] == list(range(101, 201))


@pytest.mark.parametrize(
    "state",
    [
        "[]",
        "null",
        "{",
        '"x"',
        '{"batches_trained": 1}',
        '{"trial_id": "1"}',
        '{"trial_id": 1, "more": 2}',
        '{"trial_id": 1, "batches_trained": 1e400}',
        '{"trial_id": 1, "unreported": {}}',
        "[" * 100_000,
    ],
    ids=lambda state: state[:40],
)
def test_a_damaged_state_file_is_an_error(tmp_path: Path, state: str) -> None:
    (tmp_path / "trial_state.json").write_text(state)
    with pytest.raises(CheckpointCorrupt, match=r"trial_state.json is damaged: "):
        Progress.read(tmp_path)


def test_a_valid_state_file_is_read(tmp_path: Path) -> None:
    assert Progress.read(tmp_path) is None
    (tmp_path / "trial_state.json").write_text('{"trial_id": 1, "unreported": [{"loss": NaN}]}')
    assert repr(Progress.read(tmp_path)) == repr(Progress(trial_id=1, unreported=[{"loss": math.nan}]))


class Diverging(Share):
    """Adapter whose loss is NaN after a batch, and later its metric is infinite."""

    def __init__(self, core: det.core.Context, finite: int) -> None:
        super().__init__(TrialContext.from_core(core), lambda _: None, lambda: None)
        self.finite = finite

    def train(self, batches: int, stop: Callable[[], bool]) -> Sequence[Metrics]:
        rows = super().train(batches, stop)
        first = self.count - len(rows) + 1
        return [{"loss": math.nan if batch > self.finite else 1.0} for batch in range(first, self.count + 1)]

    def validate(self, stop: Callable[[], bool]) -> Metrics | None:
        return {"validation_loss": math.inf}


@pytest.mark.parametrize(
    ("finite", "error"), [(5, "the loss of batches 7 to 8 is NaN or infinite"), (9, "validation_loss is inf")]
)
def test_stop_on_nan_ends_a_trial(finite: int, error: str) -> None:
    """A single batch with such a loss does not end it."""
    lengths = {"length": Length.parse(10), "reporting": Length.parse(2)}
    with det.core.init() as core:
        adapter = Diverging(core, finite)
        with pytest.raises(InvalidTrial, match=error):
            plan = TrainingPlan(**lengths, stop_on_nan=True, metric="validation_loss")
            TrialLoop(adapter, core, adapter.context, plan=plan).run()
    assert adapter.count == {5: 8, 9: 10}[finite]
