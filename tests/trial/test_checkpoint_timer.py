"""Timer for checkpoints, and what becomes of the checkpoints that it causes."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import det_core as det
from det_core.config import parse_config
from det_core.interfaces.records import CheckpointRecord, NewTrial, State, TrialUpdate
from det_core.trial import NEVER, TrainingPlan
from det_core.trial.checkpoints import CheckpointTimer

from .test_checkpoint_saver import Counting, loop
from .test_slots import PLAN, Share, steps, train


class Clock(defaultdict[str, float]):
    """Clock with a time of its own in each thread, whose name is the key."""

    def __init__(self) -> None:
        super().__init__(float)

    def __call__(self) -> float:
        return self[threading.current_thread().name]

    def advance(self, seconds: float) -> None:
        self[threading.current_thread().name] += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("det_core.trial.checkpoints.monotonic", clock)
    return clock


@pytest.mark.parametrize(("stall", "interval"), [(0, 900), (45, 900), (46, 920), (90, 1800)])
def test_the_interval_is_at_least_20_times_the_last_stall(clock: Clock, stall: float, interval: float) -> None:
    timer = CheckpointTimer(900)
    for length in (900, interval):
        clock.advance(length - 1)
        assert not timer.is_due()
        clock.advance(1)
        assert timer.is_due()
        with timer.saving():
            clock.advance(stall)
    assert not timer.is_due()


@pytest.mark.parametrize(
    ("keys", "seconds"),
    [
        ({}, 900),
        ({"checkpoint_policy": "all", "min_checkpoint_period": {"batches": 0}}, 900),
        ({"checkpoint_interval": 60}, 60),
        ({"checkpoint_interval": 0}, 0),
        ({"checkpoint_policy": "none"}, 0),
        ({"min_checkpoint_period": {"epochs": 1}}, 0),
    ],
)
def test_a_config_with_a_period_or_without_checkpoints_has_no_timer(keys: dict[str, Any], seconds: float) -> None:
    searcher = {"name": "single", "metric": "loss", "max_length": {"batches": 100}}
    assert TrainingPlan.of(parse_config({"searcher": searcher, **keys}), None).longest_interval == seconds


def test_a_run_keeps_the_newest_checkpoints_of_its_timer_and_those_that_others_need(
    det_home: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    def on_batch(count: int) -> None:
        clock.advance(450)  # due after two batches, which is at each report
        if count == 7:
            searcher = {"name": "single", "metric": "loss", "source_checkpoint_uuid": newest()}
            core._store.create_experiment(config={"searcher": searcher})
        if count == 10:
            core._store.create_model("best")
            core._store.add_model_version("best", newest())
        if count == 13:
            new = NewTrial(hparams={}, seed=0, source_checkpoint=newest())
            created = TrialUpdate(request_id=1, state=State.QUEUED, new=new)
            core._store.record_search(core.trial.experiment_id, [], [created])

    def checkpoints() -> Sequence[CheckpointRecord]:
        return core._store.checkpoints(trial_id=core.trial.trial_id)

    def newest() -> str:
        return checkpoints()[-1].uuid

    with det.core.init() as core:
        adapter = Counting(on_batch=on_batch)
        adapter.writes_behind = False  # type: ignore[misc]
        loop(core, adapter, checkpoint=NEVER, checkpoint_policy="best", checkpoint_interval=900).run()
        kept = [one.steps_completed for one in checkpoints()]
    assert kept == [6, 8, 12, 16, 18, 20], "expected those that others need, two by the timer, and the last"
    assert caplog.messages == []


@pytest.mark.parametrize(("ahead", "saves"), [(0, [6, 8, 10]), (1, [10])])
def test_workers_save_together_by_the_clock_of_the_chief(
    det_home: Path, clock: Clock, ahead: int, saves: list[int]
) -> None:
    def on_batch(share: Share) -> None:
        clock.advance(450 * (share.rank == ahead))

    with det.core.init() as core:
        shares, errors = train(core, on_batch, plan=replace(PLAN, checkpoint=NEVER, checkpoint_interval=900))
        assert errors == [None, None]
        assert steps(core) == saves
    assert shares[0].saved_ids == shares[1].saved_ids
