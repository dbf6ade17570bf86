"""What is left of an experiment's checkpoints when it has ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from det_core.interfaces.tracking import Checkpoint, CheckpointState, Experiment, ScoredCheckpoint, State, TrackingStore
from det_core.runner import ExperimentRunner
from det_core.runner._retention import kept

Submit = Callable[..., Experiment]


def scored(*values: tuple[str, int, float | None]) -> Sequence[ScoredCheckpoint]:
    """(uuid, trial, value) in the order of time -> the best first."""
    made = [
        ScoredCheckpoint(
            checkpoint=Checkpoint(
                uuid=uuid,
                trial_id=trial,
                run_id=1,
                state=CheckpointState.COMPLETED,
                steps_completed=number,
                storage={},
                resources={},
                metadata={},
                time=datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(minutes=number),
            ),
            value=value,
        )
        for number, (uuid, trial, value) in enumerate(values)
    ]
    return sorted(made, key=lambda one: (one.value is None, one.value))


ALL = scored(("a", 1, 3.0), ("b", 1, 1.0), ("c", 2, 2.0), ("d", 1, 2.5), ("e", 2, 4.0), ("f", 2, None))


@pytest.mark.parametrize(
    ("experiment_best", "trial_best", "trial_latest", "expected"),
    [
        (0, 1, 1, "bcdf"),
        (0, 0, 0, ""),
        (2, 0, 0, "bc"),
        (3, 0, 0, "bcd"),
        (0, 2, 0, "bcde"),
        (0, 0, 2, "bdef"),
        (9, 9, 9, "abcdef"),
    ],
)
def test_what_the_policy_keeps(experiment_best: int, trial_best: int, trial_latest: int, expected: str) -> None:
    policy: Any = SimpleNamespace(
        save_experiment_best=experiment_best, save_trial_best=trial_best, save_trial_latest=trial_latest
    )
    assert "".join(sorted(set(kept(ALL, policy)))) == expected


@pytest.fixture
def trained(store: TrackingStore, new_experiment: Submit, tmp_path: Path) -> Callable[..., Experiment]:
    """Train a trial that checkpoints four times, with a policy."""

    def train(body: str = "pass", **policy: int) -> Experiment:
        storage = {"type": "directory", "container_path": str(tmp_path / "checkpoints"), **policy}
        experiment = new_experiment(
            body, min_checkpoint_period={"batches": 10}, min_validation_period={"batches": 10},
            checkpoint_storage=storage, max_restarts=0,
            searcher={"name": "single", "metric": "validation_loss", "max_length": {"batches": 40}},
        )  # fmt: skip
        ExperimentRunner(store, experiment.id).run()
        return experiment

    return train


RISING = "def evaluate(self): return {'validation_loss': self.batch}"


def steps(store: TrackingStore, experiment: Experiment, state: CheckpointState) -> list[int | None]:
    return [one.steps_completed for one in store.checkpoints(experiment_id=experiment.id, states=[state])]


@pytest.mark.integration
def test_files_and_record_agree(trained: Callable[..., Experiment], store: TrackingStore, tmp_path: Path) -> None:
    experiment = trained(RISING)
    assert steps(store, experiment, CheckpointState.COMPLETED) == [10, 40]
    assert steps(store, experiment, CheckpointState.DELETED) == [20, 30]
    left = {one.uuid for one in store.checkpoints(experiment_id=experiment.id)}
    assert {path.parent.name for path in (tmp_path / "checkpoints").glob("*/metadata.json")} == left


@pytest.mark.integration
def test_a_failed_trial_keeps_what_it_can_go_on_from(trained: Callable[..., Experiment], store: TrackingStore) -> None:
    body = "def on_batch(self, batch):\n    if batch == 25: raise RuntimeError('broken')"
    experiment = trained(body, save_trial_latest=0, save_trial_best=0)
    assert store.experiment(experiment.id).state is State.ERROR
    assert steps(store, experiment, CheckpointState.COMPLETED) == [20]


@pytest.mark.integration
def test_what_another_experiment_starts_from_is_kept(
    trained: Callable[..., Experiment], store: TrackingStore, new_experiment: Submit, tmp_path: Path
) -> None:
    first = trained(RISING, save_trial_latest=4)
    uuids = [one.uuid for one in store.checkpoints(experiment_id=first.id)]
    store.set_experiment_state(first.id, State.PAUSED)
    storage = {"type": "directory", "container_path": str(tmp_path / "checkpoints")}
    searcher = {"name": "single", "metric": "validation_loss", "max_length": {"batches": 50}}
    new_experiment(searcher={**searcher, "source_checkpoint_uuid": uuids[2]}, checkpoint_storage=storage)
    model = store.create_model("best")
    store.add_model_version(model.name, uuids[1])
    store._update_experiment(first.id, "", {"config": {**first.config, "checkpoint_storage": storage}})  # type: ignore[attr-defined]
    ExperimentRunner(store, first.id).run()
    assert [one.uuid for one in store.checkpoints(experiment_id=first.id)] == uuids
