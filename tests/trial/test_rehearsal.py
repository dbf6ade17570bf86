"""Rehearsals before the first batch, with the real loop, storage and tracking store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import det_core as det
from det_core import disk_errors
from det_core.config import Length
from det_core.core import Context
from det_core.errors import InvalidExperimentException, InvalidTrial, RankFailed
from det_core.interfaces.framework import Metrics
from det_core.trial import TrainingPlan, TrialContext, TrialLoop, _rehearsal

from .test_slots import Share, train

BATCHES = 4


class Rehearsing(Share):
    """Adapter whose evaluation of one batch has two metrics."""

    size = 100
    rehearsals = 0
    evaluate: Callable[[int], object] = staticmethod(lambda _: None)

    def write_initial_state(self, path: Path, *, most: int) -> int:
        if self.size <= most:
            (path / "state").write_bytes(bytes(self.size))
        return self.size

    def validate(self, stop: Callable[[], bool]) -> Metrics | None:
        return {"validation_loss": 0.5}

    def rehearse(self, together: Any) -> Metrics | None:
        self.rehearsals += 1
        self.context.set_stop_requested(True)
        together(lambda: self.evaluate(self.rank))
        return {"validation_loss": 0.5, "validation_error": 0.5}


def make(core: Context, **attributes: Any) -> Rehearsing:
    adapter = Rehearsing(TrialContext.from_core(core), lambda _: None, lambda: None)
    vars(adapter).update(attributes)
    return adapter


def run(core: Context, adapter: Rehearsing, **keys: Any) -> None:
    plan: dict[str, Any] = {"length": Length.parse(BATCHES), "rehearsal": True, "metric": "validation_loss", **keys}
    TrialLoop(adapter, core, adapter.context, plan=TrainingPlan(**plan)).run()


@pytest.fixture
def core(det_home: Path) -> Iterator[Context]:
    with det.core.init() as core:
        yield core


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    def found() -> list[str]:
        return [message for message in caplog.messages if "rehearsal" in message]

    return found


def test_a_rehearsal_leaves_no_trace(det_home: Path, warnings: Callable[[], list[str]]) -> None:
    with det.core.init() as core:
        adapter = make(core)
        run(core, adapter)
        assert (adapter.rehearsals, adapter.count) == (1, BATCHES)
        [saved] = core._store.checkpoints(trial_id=core.trial.trial_id)
        storage = Path(saved.storage["container_path"])
        cluster_id = core._store.cluster_id
    assert {path.name for path in storage.iterdir()} <= {saved.uuid, cluster_id}, "the latter has TensorBoard files"
    assert not warnings()


def test_a_metric_that_no_evaluation_has_ends_the_trial_before_its_first_batch(det_home: Path) -> None:
    with det.core.init() as core:
        adapter = make(core)
        with pytest.raises(InvalidTrial) as raised:
            run(core, adapter, metric="val_loss")
    assert "metric is 'val_loss', but the validation metrics are 'validation_loss', 'validation_error'" in str(
        raised.value
    )
    assert "did you mean 'validation_loss'?" in str(raised.value)
    assert adapter.count == 0


def test_the_metric_that_is_suggested_has_its_direction(det_home: Path) -> None:
    with det.core.init() as core, pytest.raises(InvalidTrial) as raised:
        run(core, make(core), metric="validation_loss_", smaller_is_better=False)
    assert str(raised.value).endswith("; did you mean 'validation_loss' with smaller_is_better: true?")


def test_a_storage_that_cannot_be_written_ends_the_trial_before_its_first_batch(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with det.core.init(checkpoint_storage=tmp_path / "file" / "checkpoints") as core:
        adapter = make(core)
        with pytest.raises(InvalidExperimentException, match=r"could not store a checkpoint: .*Not a directory"):
            run(core, adapter)
    assert adapter.count == 0


@pytest.mark.parametrize(("size", "probed"), [(100, "state"), (2 << 30, "probe")])
def test_large_states_are_represented_by_a_probe_and_an_estimate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, probed: str
) -> None:
    stored: list[str] = []
    with det.core.init(checkpoint_storage=tmp_path / "c") as core:
        adapter = make(core, size=size)
        put = core.checkpoint._storage.put_files
        monkeypatch.setattr(
            core.checkpoint._storage, "put_files", lambda *args: (stored.extend(args[1]), put(*args))[1]
        )
        monkeypatch.setattr(disk_errors, "shutil", _Disk(free=1 << 30))
        if size > 1 << 30:
            with pytest.raises(InvalidExperimentException, match=r"has 1073 MB free, but .* about 2148 MB"):
                run(core, adapter)
            monkeypatch.setattr(disk_errors, "shutil", _Disk(free=4 << 30))
        run(core, adapter)
    assert stored == [probed]


class _Disk:
    def __init__(self, free: int) -> None:
        self.free = free

    def disk_usage(self, place: Path) -> _Disk:
        return self


def fail(rank: int) -> None:
    raise ValueError("a bug of the user")


def loop_forever(rank: int) -> None:
    while True:
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("evaluate", "named"), [(fail, "ValueError: a bug of the user"), (loop_forever, "it took longer than 1 s")]
)
def test_another_problem_of_the_evaluation_is_one_warning(
    evaluate: Callable[[int], None],
    named: str,
    det_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    warnings: Callable[[], list[str]],
) -> None:
    monkeypatch.setattr(_rehearsal, "SECONDS", 1.0)
    with det.core.init() as core:
        adapter = make(core, evaluate=evaluate)
        run(core, adapter)
    assert adapter.count == BATCHES
    [warning] = warnings()
    assert "could not evaluate a batch" in warning
    assert named in warning
    assert Path(__file__).name in warning


def never_ends(*_: Any) -> None:
    threading.Event().wait(30)


def test_a_storage_that_does_not_answer_is_not_waited_for(
    det_home: Path, monkeypatch: pytest.MonkeyPatch, warnings: Callable[[], list[str]]
) -> None:
    monkeypatch.setattr(_rehearsal, "SECONDS", 0.1)
    with det.core.init() as core:
        adapter = make(core)
        monkeypatch.setattr(core.checkpoint, "_rehearse", never_ends)
        run(core, adapter)
    assert adapter.count == BATCHES
    assert warnings() == ["the rehearsal has not stored a checkpoint within 0 s; training starts"]


def test_only_the_first_run_of_a_search_is_rehearsed(det_home: Path) -> None:
    with det.core.init() as core:
        again = replace(core, trial=replace(core.trial, trial_run_id=2))
        found = [make(core) for _ in range(5)]
        run(core, found[0], rehearsal=False, length=Length.parse(0))
        run(again, found[1], length=Length.parse(0))
        run(core, found[2], initial_validation=True, length=Length.parse(1))
        run(core, found[3])
    with det.core.init() as core:
        run(core, found[4])
    assert [adapter.rehearsals for adapter in found] == [0, 0, 0, 0, 1]


def fail_on_one(rank: int) -> None:
    if rank:
        fail(rank)


def test_workers_rehearse_together(core: Context, warnings: Callable[[], list[str]]) -> None:
    keys = {"make": Rehearsing, "rehearsal": True}

    def failing(share: Share) -> None:
        vars(share).update(evaluate=fail_on_one)

    shares, errors = train(core, on_start=failing, metric="validation_loss", **keys)
    assert errors == [None, None]
    assert [share.count for share in shares] == [10, 10]
    [warning] = warnings()
    assert "RankFailed: rank 1: ValueError: a bug of the user" in warning


def test_workers_end_together_without_the_metric(core: Context) -> None:
    shares, (chief, other) = train(core, make=Rehearsing, rehearsal=True, metric="val_loss")
    assert isinstance(chief, InvalidTrial)
    assert isinstance(other, RankFailed)
    assert [share.count for share in shares] == [0, 0]
