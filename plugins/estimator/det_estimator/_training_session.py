"""Training graph and its session."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from det_core.errors import InvalidTrial
from det_core.trial import random_generators
from det_estimator import _old_checkpoints
from det_estimator._context import EstimatorTrialContext
from det_estimator._data import TrainingData
from det_estimator._stateless_random import make_stateless

v1 = tf.compat.v1
PREFIX = "model.ckpt"

_log = logging.getLogger("det.estimator")


class TrainingSession:
    """Variables, data and batch number of the session that trains.

    Args:
        context: the context of the trial.
        make_dataset: makes the training dataset in the default graph.
    """

    def __init__(self, context: EstimatorTrialContext, make_dataset: Callable[[], Any]) -> None:
        self._context = context
        self._session: Any = None
        self.data = TrainingData(make_dataset)
        self.batch = 0
        """The number of batches trained."""

    def counted(self, train_op: Any) -> Any:
        """Return an operation that trains a batch and counts it in a variable outside the model."""
        with tf.device("cpu:0"):
            options = {"trainable": False, "collections": [], "use_resource": True, "name": "det_batch"}
            self._counter = v1.Variable(np.int64(0), **options)
            self._number = self._counter.read_value()
            with tf.control_dependencies([self._number, train_op]):
                return self._counter.assign_add(1, read_value=False)

    def build(self, loss: Any, train_op: Any) -> None:
        """Add the operations that det needs to the default graph, which is otherwise complete."""
        context, variables = self._context, v1.global_variables()
        self.fetches = collect_summaries(loss)
        seed = random_generators.derive_seed(context.get_trial_seed(), "training graph", context.distributed.rank)
        ends = [train_op, *v1.get_collection(v1.GraphKeys.SUMMARIES), *self.fetches.values()]
        kept = make_stateless([getattr(end, "op", end) for end in ends], self._number, seed)
        if kept:
            _log.info("a resumed run will draw different random numbers in: %s", ", ".join(kept))
        self._broadcast = context.backend.broadcast(variables)
        self._share_aggregated = context.share_aggregated()
        self._variables = {variable.op.name: variable for variable in variables}
        # Local variables too, because a model may show running means of metrics in its summaries.
        self._others = [*v1.local_variables(), self._counter]
        saved = [*variables, *self._others, *v1.get_collection(v1.GraphKeys.SAVEABLE_OBJECTS)]
        self._saver = v1.train.Saver(saved, max_to_keep=None, save_relative_paths=True)

    def start(self, session: Any) -> None:
        """Prepare the first batch in a session whose variables are initialized."""
        self._session = session
        session.run(self._counter.initializer)  # not initialized by a Scaffold of the user
        # From here on, each slot draws its own random numbers, no matter how many it drew to build the graph.
        seed = random_generators.derive_seed(self._context.get_trial_seed(), "slot", self._context.distributed.rank)
        random_generators.seed_generators(seed)
        self.data.start(session)

    def share(self) -> None:
        """Set the variables to the chief's values."""
        self._session.run(self._broadcast)

    def share_aggregated(self) -> None:
        """Average aggregated gradients over the slots, because a checkpoint contains only one slot's variables."""
        self._session.run(self._share_aggregated)

    def save(self, directory: Path) -> str:
        """Write the variables and return the prefix of the files."""
        prefix = str(directory / PREFIX)
        return str(self._saver.save(self._session, prefix, global_step=self.batch, write_meta_graph=False))

    def count_bytes(self) -> int:
        """Return the size of the variables in bytes."""
        known = (variable for variable in self._variables.values() if variable.shape.is_fully_defined())
        size: int = sum(variable.shape.num_elements() * variable.dtype.base_dtype.size for variable in known)
        return size

    def restore(self, path: Path, batch: int) -> None:
        """Continue from a checkpoint of this trial, saved after ``batch`` batches.

        Raises:
            InvalidTrial: the checkpoint lacks some variables, or has other shapes.
            CheckpointNotFound, CheckpointCorrupt: as for `det_estimator._old_checkpoints.newest_variables_prefix`.
        """
        prefix = _variables_prefix(path)
        # Parts of a partitioned variable are saved under its full name. The saver itself checks them.
        whole = [one for one in [*self._variables.values(), *self._others] if not one._get_save_slice_info()]
        _check(prefix, {variable.op.name: variable for variable in whole})
        self._saver.restore(self._session, prefix)
        self.data.go_to(self._session, batch)
        self.batch = batch

    def restore_weights(self, path: Path, names: set[str], averages: Mapping[str, str]) -> None:
        """Restore variables from any TensorFlow checkpoint, including those of the original system.

        Args:
            path: directory of the checkpoint.
            names: names of the variables.
            averages: variables that evaluation restores from others, with the names of these. An average that the
                checkpoint lacks begins with the variable itself.

        Raises:
            InvalidTrial: the checkpoint lacks some of these variables, or has other shapes.
            CheckpointNotFound, CheckpointCorrupt: as for `det_estimator._old_checkpoints.newest_variables_prefix`.
        """
        prefix = _variables_prefix(path)
        reader = tf.train.load_checkpoint(prefix)
        sources = {average: average if reader.has_tensor(average) else name for name, average in averages.items()}
        sources.update({name: name for name in names})
        weights = {name: variable for name, variable in self._variables.items() if name in sources}
        _check(prefix, {sources[name]: variable for name, variable in weights.items()})
        for name, variable in weights.items():
            # The graph is final, so the only way to set a variable is to run its initializer with another value.
            value = reader.get_tensor(sources[name])
            self._session.run(variable.initializer, {variable.initializer.inputs[1]: value})


def collect_summaries(loss: Any) -> dict[str, Any]:
    """Return the loss and the scalar and tensor summaries of the default graph, by tag.

    Text summaries are skipped.
    """
    found = {}
    for summary in v1.get_collection(v1.GraphKeys.SUMMARIES):
        if summary.op.type in ("ScalarSummary", "TensorSummaryV2") and summary.graph.is_fetchable(summary):
            tag, value, *_ = summary.op.inputs
            name = np.asarray(tf.get_static_value(tag)).item().decode()
            if value.dtype == tf.string:
                _log.warning("the summary %r is text and is not reported as a training metric", name)
            elif value is not loss:
                found[name] = value
    return {**found, "loss": loss}


def _variables_prefix(path: Path) -> str:
    # The file `checkpoint` of the original system names the directory where it was written.
    return str(tf.train.latest_checkpoint(str(path)) or _old_checkpoints.newest_variables_prefix(path))


def _check(prefix: str, variables: dict[str, Any]) -> None:
    shapes = tf.train.load_checkpoint(prefix).get_variable_to_shape_map()
    expected = {name: variable.shape.as_list() for name, variable in variables.items()}
    wrong = [
        f"{name}, which is {shape} here and {shapes.get(name, 'missing')} there"
        for name, shape in expected.items()
        if shapes.get(name) != shape
    ]
    if wrong:
        raise InvalidTrial(
            f"the checkpoint does not fit the model: {'; '.join(wrong)}; build the model that was saved, or start "
            "without the checkpoint"
        )
