"""Preemption at the end of the loop, and files with its progress."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import det_core as det
from det_core.config import Length
from det_core.errors import CheckpointCorrupt
from det_core.interfaces.framework import Metrics
from det_core.trial import Progress, TrainingPlan, TrialContext, TrialLoop

from .test_slots import Share


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
