"""Estimator trial that uses the whole interface of its class, context and hooks, and takes notes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from det_estimator import EstimatorTrial, EstimatorTrialContext, MetricReducer, RunHook

v1 = tf.compat.v1
VALIDATION = np.arange(11, dtype=np.float32)[:, None]
STOP_AT = 3
"""The batch after which the last slot's hook asks to stop, in the first run."""


class Trial(EstimatorTrial):
    """Linear regression."""

    def __init__(self, context: EstimatorTrialContext) -> None:
        super().__init__(context)
        ranks = context.distributed
        Path(context.get_tensorboard_path(), "mine.txt").write_text(f"of rank {ranks.rank}")
        values = {
            "ranks": [ranks.get_rank(), ranks.get_local_rank(), ranks.get_size(), ranks.get_num_agents()],
            "gathered": [ranks.gather(ranks.rank), ranks.gather_local(ranks.rank)],
            "allgathered": [ranks.allgather(ranks.rank), ranks.allgather_local(ranks.rank)],
            "sent": [ranks.broadcast(ranks.rank), ranks.broadcast_local(ranks.rank)],
            "batch sizes": [context.get_global_batch_size(), context.get_per_slot_batch_size()],
            "hparams": [context.get_hparam("rate"), context.get_hparams()],
            "config": [context.get_data_config(), context.get_experiment_config()["entrypoint"]],
            "ids": [context.get_experiment_id(), context.get_trial_id()],
            "stop requested": context.get_stop_requested(),
        }
        note(context, values)

    def build_estimator(self) -> Any:
        return tf.estimator.Estimator(self.model)

    def model(self, features: Any, labels: Any, mode: str) -> Any:
        guess = v1.layers.dense(features["x"], 1)
        if mode == tf.estimator.ModeKeys.PREDICT:
            return tf.estimator.EstimatorSpec(mode, predictions={"guess": guess})
        loss = tf.reduce_mean((guess - labels) ** 2)
        optimizer = self.context.wrap_optimizer(v1.train.GradientDescentOptimizer(self.context.get_hparam("rate")))
        train_op = optimizer.minimize(loss, v1.train.get_global_step())
        seen = {
            "order": self.context.make_metric({"x": features["x"]}, in_order, np.int64),
            "mean": self.context.make_metric([features["x"], labels], Mean(), "float64"),
            "validation_loss": self.context.make_metric(tf.abs(guess - labels), np.mean, np.float32),
        }
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=seen)

    def build_train_spec(self) -> Any:
        return tf.estimator.TrainSpec(self.training, hooks=[Hook(self.context)])

    def build_validation_spec(self) -> Any:
        return tf.estimator.EvalSpec(self.validation, steps=None)

    def build_serving_input_receiver_fns(self) -> dict[str, Any]:
        features = {"x": tf.io.FixedLenFeature([1], tf.float32)}
        return {
            "raw": tf.estimator.export.build_raw_serving_input_receiver_fn(
                {"x": v1.placeholder(tf.float32, [None, 1])}
            ),
            "parsing": tf.estimator.export.build_parsing_serving_input_receiver_fn(features),
        }

    def training(self) -> Any:
        inputs = np.arange(16, dtype=np.float32)[:, None] / 16
        dataset = self.context.wrap_dataset(tf.data.Dataset.from_tensor_slices(({"x": inputs}, 3 * inputs)))
        return dataset.batch(self.context.get_per_slot_batch_size())

    def validation(self) -> Any:
        ranks = self.context.distributed
        dataset = tf.data.Dataset.from_tensor_slices(({"x": VALIDATION}, 3 * VALIDATION))
        return self.context.wrap_dataset(dataset.shard(ranks.size, ranks.rank), shard_dataset=False).batch(1)


class Hook(RunHook):
    """Hook that records its calls, and asks to stop once."""

    def __init__(self, context: EstimatorTrialContext) -> None:
        self._context = context
        self._stops = context.distributed.rank == context.distributed.size - 1
        self._batches = 0

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._batches += 1
        if self._stops and self._batches == STOP_AT:
            run_context.request_stop()

    def on_checkpoint_load(self, checkpoint_dir: str) -> None:
        self._stops = False
        self._note("loaded", checkpoint_dir)

    def on_checkpoint_end(self, checkpoint_dir: str) -> None:
        self._note("saved", checkpoint_dir)
        Path(checkpoint_dir, "mine.txt").write_text("kept")

    def on_trial_close(self) -> None:
        note(self._context, ["closed", self._batches, self._context.get_stop_requested()])

    def _note(self, event: str, checkpoint_dir: str) -> None:
        note(self._context, [event, tf.train.latest_checkpoint(checkpoint_dir).rpartition("-")[2]])


class Mean(MetricReducer):
    """Mean of the first of two tensors."""

    def __init__(self) -> None:
        self.sum, self.count = 0.0, 0

    def accumulate(self, metric: Any) -> Any:
        inputs, labels = metric
        assert (labels == 3 * inputs).all()
        self.sum, self.count = self.sum + float(inputs.sum()), self.count + inputs.size
        return self.sum, self.count

    def cross_slot_reduce(self, per_slot_metrics: list[Any]) -> Any:
        sums, counts = zip(*per_slot_metrics, strict=True)
        return np.array(sum(sums) / sum(counts))


def in_order(batches: list[Any]) -> int:
    """Return the number of batches that are in the order of the data."""
    return sum(int(batch["x"].item()) == place for place, batch in enumerate(batches))


def note(context: EstimatorTrialContext, value: Any) -> None:
    """Add a line to the notes of this slot."""
    with notes(Path(os.environ["DET_HOME"]), context.distributed.rank).open("a") as file:
        print(json.dumps(value), file=file)


def notes(directory: Path, rank: int) -> Path:
    """Return the file with the notes of a slot."""
    return directory / f"notes-{rank}"
