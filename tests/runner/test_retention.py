"""Retention of checkpoints after an experiment has ended."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import update

from det_core.cli import main
from det_core.config import parse_config
from det_core.core import checkpoint_removal
from det_core.core.checkpoint_removal import remove_checkpoint
from det_core.core.checkpoint_retention import remove_superfluous, select_kept
from det_core.errors import ExperimentBusy, StaleRun
from det_core.interfaces.records import CheckpointRecord, CheckpointState, ExperimentRecord, ScoredCheckpoint, State
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import ExperimentRunner
from det_core.tracking._schema import experiments

from .conftest import Submit


def scored(*values: tuple[str, int, float | None]) -> Sequence[ScoredCheckpoint]:
    """Return checkpoints, best first, from (uuid, trial, value) in order of time."""
    made = [
        ScoredCheckpoint(
            checkpoint=CheckpointRecord(
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
            size=0,
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
def test_the_policy_keeps_the_best_and_the_latest(
    experiment_best: int, trial_best: int, trial_latest: int, expected: str
) -> None:
    policy: Any = SimpleNamespace(
        save_experiment_best=experiment_best, save_trial_best=trial_best, save_trial_latest=trial_latest
    )
    complete = sorted((one.checkpoint for one in ALL), key=lambda one: one.time)
    assert "".join(sorted(set(select_kept(ALL, complete, policy)))) == expected


@pytest.fixture
def trained(store: TrackingStore, new_experiment: Submit, tmp_path: Path) -> Callable[..., ExperimentRecord]:
    """Train a trial that checkpoints four times, with a policy."""

    def train(body: str = "pass", **policy: int) -> ExperimentRecord:
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


def steps(store: TrackingStore, experiment: ExperimentRecord, state: CheckpointState) -> list[int | None]:
    return [one.steps_completed for one in store.checkpoints(experiment_id=experiment.id, states=[state])]


@pytest.mark.integration
def test_files_and_store_agree_on_deleted_checkpoints(
    trained: Callable[..., ExperimentRecord], store: TrackingStore, tmp_path: Path
) -> None:
    experiment = trained(RISING)
    assert steps(store, experiment, CheckpointState.COMPLETED) == [10, 40]
    assert steps(store, experiment, CheckpointState.DELETED) == [20, 30]
    left = {one.uuid for one in store.checkpoints(experiment_id=experiment.id)}
    assert {path.parent.name for path in (tmp_path / "checkpoints").glob("*/metadata.json")} == left


@pytest.mark.integration
def test_a_failed_experiment_keeps_all_checkpoints_until_gc(
    trained: Callable[..., ExperimentRecord], store: TrackingStore, capsys: pytest.CaptureFixture[str]
) -> None:
    body = "def on_batch(self, batch):\n    if batch == 25: raise RuntimeError('broken')"
    experiment = trained(body, save_trial_latest=0, save_trial_best=0)
    assert store.experiment(experiment.id).state is State.ERROR
    assert steps(store, experiment, CheckpointState.COMPLETED) == [10, 20]
    assert main(["checkpoint", "gc", str(experiment.id)]) == 0
    assert "Removed 1 checkpoint" in capsys.readouterr().out
    assert steps(store, experiment, CheckpointState.COMPLETED) == [20]  # the experiment can be resumed from it


def left(store: TrackingStore, experiment: ExperimentRecord) -> list[str]:
    return [one.uuid for one in store.checkpoints(experiment_id=experiment.id)]


def test_an_experiment_that_starts_from_a_deleted_trial_does_not_prevent_clean_up(
    saved: Callable[..., ExperimentRecord], store: TrackingStore
) -> None:
    """A reference to a deleted trial does not prevent the clean-up of other experiments' checkpoints."""
    experiment = saved(State.COMPLETED)
    saved(State.PAUSED, source_trial_id=12345)
    policy = parse_config(experiment.config).checkpoint_storage
    assert policy
    remove_superfluous(store, experiment.id, policy, lambda: True, lease="", on_deleted=lambda _: None)
    assert left(store, experiment) == ["1-3"]


@pytest.mark.parametrize(
    "searcher",
    [
        "x",
        ["x"],
        {"source_trial_id": "x"},
        {"source_trial_id": [1]},
        {"source_trial_id": 1 << 70},
        {"source_checkpoint_uuid": {"a": 1}},
    ],
)
def test_odd_configs_of_others_do_not_prevent_clean_up(
    saved: Callable[..., ExperimentRecord], store: TrackingStore, searcher: object
) -> None:
    experiment = saved(State.COMPLETED)
    store.create_experiment(config={"searcher": searcher}, owner="another user, with a program of their own")
    policy = parse_config(experiment.config).checkpoint_storage
    assert policy
    remove_superfluous(store, experiment.id, policy, lambda: True, lease="", on_deleted=lambda _: None)
    assert left(store, experiment) == ["1-3"]
    assert main(["experiment", "delete", str(experiment.id), "--yes"]) == 0


def test_an_experiment_that_is_submitted_during_a_clean_up_keeps_its_source(
    saved: Callable[..., ExperimentRecord], store: TrackingStore
) -> None:
    experiment = saved(State.COMPLETED)
    policy = parse_config(experiment.config).checkpoint_storage
    assert policy

    def submit(_: object) -> None:
        saved(State.QUEUED, source_checkpoint_uuid="1-2")

    remove_superfluous(store, experiment.id, policy, lambda: True, lease="", on_deleted=submit)
    assert left(store, experiment) == ["1-2", "1-3"]


def test_a_server_that_has_the_files_knows_who_removes_them(
    saved: Callable[..., ExperimentRecord], store: TrackingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server refuses the latest checkpoint of a running trial, unless the holder of its lease removes it."""
    asked: list[tuple[str, str]] = []

    def ask(store: TrackingStore, path: str, document: Mapping[str, str], reason: object) -> Mapping[str, Any]:
        asked.append((document["lease"], store.lease_holder(experiment.id) or ""))
        return {}

    experiment = saved(State.COMPLETED)
    policy = parse_config(experiment.config).checkpoint_storage
    assert policy
    (tmp_path / "checkpoints").rename(tmp_path / "on-the-server")
    monkeypatch.setattr(checkpoint_removal, "is_server_url", lambda url: True)
    monkeypatch.setattr(checkpoint_removal, "_ask_server", ask)
    store.acquire_lease(experiment.id, "runner", seconds=60)
    remove_superfluous(store, experiment.id, policy, lambda: True, lease="runner", on_deleted=lambda _: None)
    store.release_lease(experiment.id, "runner")
    for command in (["gc", str(experiment.id)], ["rm", f"{experiment.id}-3", f"{experiment.id}-2", "--yes"]):
        assert main(["checkpoint", *command]) == 0
    assert [given == holder != "" for given, holder in asked] == [True] * 6


def test_an_error_of_the_store_during_clean_up_ends_only_the_clean_up(
    saved: Callable[..., ExperimentRecord], store: TrackingStore, det_home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    experiment = saved(State.COMPLETED)
    policy = parse_config(experiment.config).checkpoint_storage
    assert policy

    def lose_lease() -> bool:
        raise StaleRun("another runner")

    def clean_up() -> None:
        remove_superfluous(store, experiment.id, policy, lose_lease, lease="", on_deleted=lambda _: None)

    clean_up()
    moved = (det_home / "det.db").rename(det_home / "elsewhere")
    clean_up()
    moved.rename(det_home / "det.db")
    assert left(store, experiment) == ["1-1", "1-2", "1-3"]
    assert [f"det checkpoint gc {experiment.id}" in line for line in caplog.messages] == [True, True]
    assert "another runner" in caplog.messages[0]


@pytest.mark.parametrize("key", ["source_trial_id", "source_checkpoint_uuid"])
def test_an_experiment_that_another_one_starts_from_is_not_deleted(
    saved: Callable[..., ExperimentRecord], store: TrackingStore, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names the experiment that starts from it."""
    first = saved(State.COMPLETED)
    second = saved(State.PAUSED, **{key: {"source_trial_id": 1, "source_checkpoint_uuid": "1-2"}[key]})
    assert main(["experiment", "delete", str(first.id), "--yes"]) == 1
    assert f"experiment {second.id} starts from" in capsys.readouterr().err
    assert main(["experiment", "delete", str(second.id), "--yes"]) == 0
    assert main(["experiment", "delete", str(first.id), "--yes"]) == 0


@pytest.mark.parametrize("key", ["source_trial_id", "source_checkpoint_uuid"])
def test_a_checkpoint_that_another_experiment_starts_from_is_not_removed(
    saved: Callable[..., ExperimentRecord], store: TrackingStore, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(State.COMPLETED)
    second = saved(State.PAUSED, **{key: {"source_trial_id": 1, "source_checkpoint_uuid": "1-3"}[key]})
    assert main(["checkpoint", "rm", "1-3", "--yes"]) == 1
    assert f"checkpoint 1-3 is needed by experiment {second.id}" in capsys.readouterr().err
    store.set_experiment_state(second.id, State.COMPLETED)
    assert main(["checkpoint", "rm", "1-3", "--yes"]) == 0


def test_gc_keeps_the_checkpoints_that_the_policy_selects(
    saved: Callable[..., ExperimentRecord], store: TrackingStore, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = saved(State.CANCELED)
    assert main(["checkpoint", "gc", "1", "--dry-run", "--json"]) == 0
    assert [one["uuid"] for one in json.loads(capsys.readouterr().out)["checkpoints"]] == ["1-1", "1-2"]
    assert left(store, experiment) == ["1-1", "1-2", "1-3"]
    store.fail_checkpoint("1-3", "damaged")  # a damaged checkpoint does not count as the latest
    assert main(["checkpoint", "gc", "1"]) == 0
    assert left(store, experiment) == ["1-2"]
    store.acquire_lease(experiment.id, "host:1:1:x", seconds=60)
    assert main(["checkpoint", "gc", "1"]) == 1
    assert "host:1:1:x" in capsys.readouterr().err
    assert main(["checkpoint", "gc", "1", "--orphans"]) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_clean_up_stops_only_the_clean_up(
    saved: Callable[..., ExperimentRecord],
    store: TrackingStore,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    number: signal.Signals,
) -> None:
    """The experiment is COMPLETED before its checkpoints are cleaned up, and a signal does not change that."""
    experiment = saved(State.ACTIVE)
    states = []

    def interrupted(*arguments: Any, **options: Any) -> None:
        states.append(store.experiment(experiment.id).state)
        signal.raise_signal(number)
        remove_checkpoint(*arguments, **options)

    monkeypatch.setattr("det_core.core.checkpoint_retention.remove_checkpoint", interrupted)
    monkeypatch.setattr(
        ExperimentRunner, "_run", lambda *_: store.set_trial_state(1, State.COMPLETED) or State.COMPLETED
    )
    assert ExperimentRunner(store, experiment.id).run() is State.COMPLETED
    assert states == [State.COMPLETED]
    assert store.experiment(experiment.id).state is State.COMPLETED
    assert left(store, experiment) == ["1-2", "1-3"]
    assert f"det checkpoint gc {experiment.id}" in caplog.text


def test_an_experiment_resumed_while_its_deletion_is_confirmed_keeps_its_checkpoints(
    saved: Callable[..., ExperimentRecord],
    store: TrackingStore,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The deletion needs the lease, so it cannot begin while a runner holds it."""
    experiment = saved(State.PAUSED)

    def resumed(*arguments: Any, **options: Any) -> bool:
        store.acquire_lease(experiment.id, "host:1:1:x", seconds=60)
        return True

    monkeypatch.setattr("det_core.cli.commands._experiment_delete.confirm_removal", resumed)
    assert main(["experiment", "delete", str(experiment.id)]) == 1
    assert "host:1:1:x" in capsys.readouterr().err
    assert left(store, experiment) == ["1-1", "1-2", "1-3"]


def test_nobody_resumes_an_experiment_while_it_is_deleted(
    saved: Callable[..., ExperimentRecord], store: TrackingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A runner that starts during the deletion is refused."""
    experiment = saved(State.PAUSED)
    refused = []

    def resumed_meanwhile(*arguments: Any, **options: Any) -> None:
        with pytest.raises(ExperimentBusy) as caught:
            ExperimentRunner(store, experiment.id).run()
        refused.append(caught.value)
        remove_checkpoint(*arguments, **options)

    monkeypatch.setattr("det_core.cli.commands._experiment_delete.remove_checkpoint", resumed_meanwhile)
    assert main(["experiment", "delete", str(experiment.id), "--yes"]) == 0
    assert len(refused) == 3


@pytest.mark.integration
def test_checkpoints_that_another_experiment_starts_from_are_kept(
    trained: Callable[..., ExperimentRecord], store: TrackingStore, new_experiment: Submit, tmp_path: Path
) -> None:
    first = trained(RISING, save_trial_latest=4)
    uuids = [one.uuid for one in store.checkpoints(experiment_id=first.id)]
    store.set_experiment_state(first.id, State.PAUSED)
    storage = {"type": "directory", "container_path": str(tmp_path / "checkpoints")}
    searcher = {"name": "single", "metric": "validation_loss", "max_length": {"batches": 50}}
    new_experiment(searcher={**searcher, "source_checkpoint_uuid": uuids[2]}, checkpoint_storage=storage)
    model = store.create_model("best")
    store.add_model_version(model.name, uuids[1])
    with store._database.write() as connection:  # type: ignore[attr-defined]
        change = update(experiments).where(experiments.c.id == first.id)
        connection.execute(change.values(config={**first.config, "checkpoint_storage": storage}))
    ExperimentRunner(store, first.id).run()
    assert [one.uuid for one in store.checkpoints(experiment_id=first.id)] == uuids
