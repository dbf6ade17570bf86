"""Training loop of one trial on two workers, which are threads here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import det_core as det
from det_core.config import Length
from det_core.core import Context, DistributedContext
from det_core.errors import InvalidTrial, RankFailed
from det_core.interfaces.framework import Metrics, TrialAdapter
from det_core.trial import Progress, TrainingPlan, TrialContext, TrialLoop
from det_core.trial.metric_averages import merge_rank_metrics

from ..comm.job import free_port

SIZE = 2
PLAN = TrainingPlan(length=Length.parse({"epochs": 2}), reporting=Length.parse(2), checkpoint=Length.parse(5))


class Share(TrialAdapter):
    """Adapter of one worker. Its loss is ten times its rank."""

    batches_per_epoch: int = 5
    records_per_batch = 1
    writes_behind = True
    sharded: bool = False

    def __init__(self, context: TrialContext, on_batch: Callable[[Share], None], on_write: Callable[[], None]) -> None:
        self.context, self.rank = context, context.distributed.rank
        self.count = 0
        self.on_batch, self.on_write = on_batch, on_write
        self.saved_ids: list[str] = []
        self.reports: list[tuple[Metrics, Sequence[Metrics]]] = []

    def train(self, batches: int, stop: Callable[[], bool]) -> Sequence[Metrics]:
        rows = []
        for _ in range(batches):
            self.count += 1
            self.on_batch(self)
            rows.append({"loss": 10.0 * self.rank, "who": f"rank {self.rank}"})
        return rows

    def validate(self, stop: Callable[[], bool]) -> Metrics | None:
        return {"validation_loss": 1.0 / self.count}

    def snapshot(self) -> Callable[[Path], None]:
        def write(path: Path) -> None:
            assert self.sharded or self.rank == 0
            self.on_write()
            (path / f"count_{self.rank}").write_text(str(self.count))

        return write

    def load(self, path: Path, *, batches_trained: int) -> None:
        raise AssertionError("there is nothing to load")

    def saved(self, storage_id: str) -> None:
        self.saved_ids.append(storage_id)

    def reported(self, metrics: Metrics, batch_metrics: Sequence[Metrics]) -> None:
        self.reports.append((metrics, batch_metrics))


@pytest.fixture
def core(det_home: Path) -> Iterator[Context]:
    with det.core.init() as core:
        yield core


def train(
    core: Context,
    on_batch: Callable[[Share], None] = lambda _: None,
    on_write: Callable[[], None] = lambda: None,
    on_start: Callable[[Share], None] = lambda _: None,
    plan: TrainingPlan = PLAN,
    make: Callable[..., Share] = Share,
    **keys: Any,
) -> tuple[list[Share], list[BaseException | None]]:
    """Run both workers to the end. Return their adapters and the errors that they raised."""
    plan = replace(plan, **keys)
    shares: list[Any] = [None] * SIZE
    port = free_port()

    def work(rank: int) -> None:
        ranks = {"rank": rank, "local_rank": rank, "cross_rank": 0}
        distributed = DistributedContext(**ranks, size=SIZE, local_size=SIZE, cross_size=1, pub_port=port, timeout=120)
        try:
            checkpoint = copy(core.checkpoint)
            checkpoint._distributed = distributed
            own = replace(core, distributed=distributed, checkpoint=checkpoint)
            context = TrialContext.from_core(own)
            shares[rank] = make(context, on_batch, on_write)
            on_start(shares[rank])
            TrialLoop(shares[rank], own, context, plan=plan).run()
        finally:
            distributed.close()

    with ThreadPoolExecutor(SIZE) as threads:
        futures = [threads.submit(work, rank) for rank in range(SIZE)]
    return shares, [future.exception() for future in futures]


def steps(core: Context) -> list[int | None]:
    return [row.steps_completed for row in core._store.checkpoints(trial_id=core.trial.trial_id)]


def test_the_chief_reports_means_and_saves_once_and_all_workers_are_notified(core: Context) -> None:
    shares, errors = train(core)
    assert errors == [None, None]
    core.train.flush()
    training = [report for report in core._store.metrics(core.trial.trial_id) if report.group == "training"]
    assert [report.steps_completed for report in training] == [2, 4, 5, 6, 8, 10]
    assert all(report.metrics == {"loss": 5.0} for report in training)
    assert list(training[0].batch_metrics or ()) == [{"loss": 5.0, "who": "rank 0"}] * 2
    assert shares[0].reports == shares[1].reports
    assert steps(core) == [5, 10]
    assert shares[0].saved_ids == shares[1].saved_ids
    assert len(shares[0].saved_ids) == 2


def test_a_stop_requested_on_one_worker_stops_all(core: Context) -> None:
    def stop(share: Share) -> None:
        if (share.rank, share.count) == (1, 3):
            share.context.set_stop_requested(True)

    shares, errors = train(core, stop)
    assert errors == [None, None]
    assert [share.count for share in shares] == [4, 4]
    assert steps(core) == [4]


def full() -> None:
    raise OSError("no space left")


def test_an_error_of_the_writer_is_raised_by_all_workers(core: Context) -> None:
    shares, (chief, other) = train(core, on_write=full)
    assert isinstance(chief, OSError)
    assert isinstance(other, RankFailed)
    assert "rank 0: OSError: no space left" in str(other)
    assert not shares[0].saved_ids


def test_the_shards_of_all_workers_make_one_checkpoint(core: Context) -> None:
    def sharded(share: Share) -> None:
        share.sharded = True

    shares, errors = train(core, on_start=sharded)
    assert errors == [None, None]
    assert steps(core) == [5, 10]
    assert shares[0].saved_ids == shares[1].saved_ids
    with core.checkpoint.restore_path(shares[0].saved_ids[-1]) as path:
        assert [(path / f"count_{rank}").read_text() for rank in range(SIZE)] == ["10", "10"]
        assert Progress.read(path).batches_trained == 10


def test_an_error_in_one_shard_is_raised_by_all_workers(core: Context) -> None:
    def sharded(share: Share) -> None:
        share.sharded = True
        share.on_write = full if share.rank else share.on_write

    shares, (chief, other) = train(core, on_start=sharded)
    assert isinstance(other, OSError)
    assert isinstance(chief, RankFailed)
    assert "rank 1: OSError: no space left" in str(chief)
    assert not shares[0].saved_ids
    assert not steps(core)


def test_workers_with_data_of_different_lengths_are_refused(core: Context) -> None:
    def longer(share: Share) -> None:
        share.batches_per_epoch += share.rank

    shares, errors = train(core, on_start=longer)
    assert all(isinstance(error, InvalidTrial) for error in errors)
    assert "give all of them data of one length" in str(errors[0])
    assert [share.count for share in shares] == [0, 0]


def test_numbers_are_averaged_over_the_workers_that_report_them() -> None:
    assert merge_rank_metrics([{"loss": 1, "name": "a"}, {"loss": 2.0, "name": "b", "only": 4}]) == {
        "loss": 1.5,
        "name": "a",
        "only": 4.0,
    }


def test_lists_are_averaged_element_by_element_or_joined() -> None:
    assert merge_rank_metrics(
        [{"classes": [1, [2]], "losses": [1.0]}, {"classes": [3, [4]], "losses": [2.0, 3.0]}]
    ) == {
        "classes": [2.0, [3.0]],
        "losses": [1.0, 2.0, 3.0],
    }
    np = pytest.importorskip("numpy")
    merged = merge_rank_metrics(
        [{"one": np.zeros((2, 1)), "two": np.ones(1)}, {"one": np.ones((2, 1)), "two": np.ones(2)}]
    )
    assert {name: np.asarray(value).tolist() for name, value in merged.items()} == {
        "one": [[0.5], [0.5]],
        "two": [1.0] * 3,
    }
