"""What forked children can do with the objects of their parent."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import det_core
from det_core import core
from det_core.core import DistributedContext
from det_core.experimental import Determined
from det_core.interfaces.records import CheckpointState, State
from det_core.tracking import open_store
from det_core.trial import TrialContext

from ..comm import job
from ..forked_child import call_in_child, ending_children, fork_before, public_blocks, public_classes

PARTS = ("train", "preempt", "checkpoint", "searcher", "profiler", "distributed", "experimental")
CONFIG = {
    "searcher": {"max_length": {"batches": 9}},
    "hyperparameters": {"global_batch_size": {"type": "const", "val": 4}, "rate": {"type": "const", "val": 0.1}},
}
ARGUMENTS = {
    "group": "throughput",
    "length": 1,
    "metadata": {},
    "metrics": {"loss": 1.0},
    "name": "rate",
    "progress": 0.5,
    "reason": core.EarlyExitReason.USER_REQUESTED_STOP,
    "searcher_metric": 1.0,
    "status": "busy",
    "steps_completed": 2,
    "stop_requested": True,
}
REFUSED = {
    *(f"train.{name}" for name in ("flush", "get_experiment_best_validation", "report_metrics", "report_progress")),
    *(f"train.{name}" for name in ("report_training_metrics", "report_validation_metrics", "set_status")),
    "train.get_tensorboard_path",
    *("preempt.should_preempt", "checkpoint.store_path", "checkpoint.upload", "profiler.off", "profiler.on"),
    *("operation.report_completed", "operation.report_progress"),
}
"""Methods that need a thread of the parent, or would record something out of order with it."""


def save(context: core.Context) -> str:
    with context.checkpoint.store_path({"steps_completed": 1}) as (path, storage_id):
        (path / "weights").write_text("w")
    return storage_id


@pytest.mark.integration
def test_each_method_works_in_a_child_or_says_where_to_call_it(tmp_path: Path) -> None:
    mode = core.TensorboardMode.MANUAL
    with ending_children(), core.init(checkpoint_storage=tmp_path, config=CONFIG, tensorboard_mode=mode) as context:
        context.train.report_training_metrics(1, {"loss": 0.5})
        context.profiler.on()
        kept, deleted = save(context), save(context)
        objects = {
            "context": context,
            **{part: getattr(context, part) for part in PARTS},
            "operation": next(context.searcher.operations()),
            "trial": TrialContext.from_core(context),
        }
        arguments = {
            **ARGUMENTS,
            "ckpt_dir": tmp_path / "downloaded",
            "checkpoint": kept,
            "model_version": Determined().create_model("m").register_version(kept),
            "storage_id": kept,
            "checkpoint.delete.storage_id": deleted,
            "checkpoint.upload.ckpt_dir": tmp_path / "missing",  # which would be noticed before the first byte
        }
        outcomes = call_in_child(objects, arguments)
    walked = {type(one).__name__ for one in objects.values()}
    assert public_classes("det_core", "det_core.core") - {"Trial"} <= walked
    assert {name for name, outcome in outcomes.items() if "belongs to process" in outcome} == REFUSED
    assert {name: outcome for name, outcome in outcomes.items() if outcome and name not in REFUSED} == {}


@pytest.mark.integration
def test_a_child_that_leaves_the_blocks_of_its_parent_changes_nothing(tmp_path: Path) -> None:
    """The child goes on as its parent does."""
    with open_store() as store:
        with ending_children(), core.init(checkpoint_storage=tmp_path, quiet=True) as context:
            context.train.report_training_metrics(1, {"loss": 0.5})
            board = context.train.get_tensorboard_path()
            with context.checkpoint.store_path({"steps_completed": 1}, shard=True) as (path, storage_id):
                (path / "weights").write_text("w")
                fork_before()
            assert store.checkpoint(storage_id).state is CheckpointState.COMPLETED
            with context.checkpoint.restore_path(storage_id) as path:
                fork_before()
                assert (path / "weights").read_text() == "w"
            with det_core.import_from_path(tmp_path):
                fork_before()
                assert str(tmp_path) in sys.path
            assert board.is_dir()
            assert store.experiment(1).state is State.ACTIVE
            context.train.report_training_metrics(2, {"loss": 0.4})
        assert store.experiment(1).state is State.COMPLETED
        assert [report.steps_completed for report in store.metrics(1)] == [1, 2]
    blocks = {"Context", "CheckpointContext.restore_path", "CheckpointContext.store_path", "import_from_path"}
    assert public_blocks("det_core", "det_core.core", "det_core.experimental") == blocks


def test_a_child_cannot_talk_to_the_other_workers() -> None:
    """It can neither use nor close the connections of its parent."""

    def work(distributed: DistributedContext) -> dict[str, str]:
        outcomes = {}
        if distributed.rank == 0:
            with ending_children():
                outcomes = call_in_child({"distributed": distributed}, {"stuff": 1})
        assert distributed.allgather(distributed.rank) == [0, 1]
        return outcomes

    outcomes, _ = job.threads(job.layout(2), work)
    refused = {name.partition(".")[2] for name, outcome in outcomes.items() if outcome}
    collectives = {"allgather", "broadcast", "gather"}
    assert refused == {*collectives, *(f"{name}_local" for name in collectives), "channel"}
    assert all("a forked child cannot use it" in outcome for outcome in outcomes.values() if outcome)
