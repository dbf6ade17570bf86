"""`DisturbedExperiment` waits for a limited time, and notices batches that were lost or trained twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from det_testing import disturbed_experiment
from det_testing.disturbed_experiment import SECONDS, DisturbedExperiment

from det_core.interfaces.records import MetricsReport, State
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store

VALUES = [0.0]
for number in range(8):
    VALUES.append(VALUES[-1] / 2 + number)
TRAINED = dict(enumerate(VALUES[1:], 1))
"""Value after each batch, which is half of the previous one plus the number of earlier batches."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TrackingStore]:
    with open_store(f"sqlite:///{tmp_path / 'det.db'}") as store:
        yield store


@pytest.fixture
def experiment(store: TrackingStore, tmp_path: Path) -> DisturbedExperiment:
    return DisturbedExperiment(store, tmp_path, {"type": "local"})


def test_a_wait_ends_at_its_time_limit_and_says_what_it_waited_for(
    experiment: DisturbedExperiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, looks = 0.0, 0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += SECONDS / 4

    def look() -> None:
        nonlocal looks
        looks += 1

    monkeypatch.setattr(disturbed_experiment, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    with pytest.raises(AssertionError, match="no worker; "):
        experiment.wait_for(look, "worker")
    assert (now, looks) == (SECONDS, 5)
    assert experiment.wait_for(lambda: "found", "worker") == "found"


@pytest.mark.parametrize(
    ("values", "state", "restarts", "passes"),
    [
        (TRAINED, State.COMPLETED, 0, True),
        (dict([*TRAINED.items()][:-1]), State.COMPLETED, 0, False),
        ({**TRAINED, 8: TRAINED[8] / 2 + 7}, State.COMPLETED, 0, False),
        (TRAINED, State.PAUSED, 0, False),
        (TRAINED, State.COMPLETED, 1, False),
    ],
    ids=["undisturbed", "lost", "twice", "not completed", "not restarted"],
)
def test_the_result_is_undisturbed_if_each_batch_was_trained_once(
    experiment: DisturbedExperiment,
    store: TrackingStore,
    values: dict[int, float],
    state: State,
    restarts: int,
    passes: bool,
) -> None:
    trial = store.create_trial(experiment.id, hparams={}, seed=0)
    run = store.start_run(trial.id, allocation_id="a")
    ids = {"trial_id": trial.id, "run_id": run.run_id, "group": "training"}
    store.report_metrics(
        [MetricsReport(**ids, steps_completed=batch, metrics={"value": value}) for batch, value in values.items()]
    )
    store.set_experiment_state(experiment.id, state)
    with nullcontext() if passes else pytest.raises(AssertionError):
        experiment.require_undisturbed_result(restarts=restarts)
