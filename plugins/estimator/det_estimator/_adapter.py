"""Adapter through which TrialLoop drives an EstimatorTrial."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import tensorflow as tf

from det_core.errors import InvalidTrial
from det_core.interfaces.framework import Metrics, OnAllWorkers, TrialAdapter
from det_core.package_commands import package_command
from det_core.storage import read_object
from det_core.trial import random_generators
from det_estimator._context import EstimatorTrialContext
from det_estimator._evaluation import Validator
from det_estimator._load import STATE_FILE, warn_of_other_weights
from det_estimator._run_hook import RunHook
from det_estimator._specs import EstimatorSpecs
from det_estimator._training_session import TrainingSession
from det_estimator._trial import EstimatorTrial

v1 = tf.compat.v1
ModeKeys = tf.estimator.ModeKeys
_FORMAT = 1

_log = logging.getLogger("det.estimator")


class EstimatorAdapter(TrialAdapter):
    """Adapter that trains and evaluates one `EstimatorTrial` in this process, in one call of its Estimator's ``train``.

    Args:
        trial: the trial to train.
        context: the context of the trial.
        store_summaries: stores the files that were written for TensorBoard.

    Raises:
        InvalidTrial: the trial is incomplete or contradicts itself.
    """

    def __init__(
        self, trial: EstimatorTrial, context: EstimatorTrialContext, store_summaries: Callable[[], None]
    ) -> None:
        self._trial, self._context, self._store_summaries = trial, context, store_summaries
        self._specs = EstimatorSpecs.of(trial, context)
        self._estimator = self._specs.rebuilt(self._with_last_hook)
        self._hooks = [hook for hook in self._specs.train.hooks if isinstance(hook, RunHook)]
        self._warned = False
        self.session = TrainingSession(context, self._specs.training_dataset)
        self._validator = Validator(
            self._estimator, self._specs.evaluation, context, self._specs.validation_dataset, self.session.save
        )

    @property
    def batches_per_epoch(self) -> int | None:
        return self._context.batches_per_epoch()

    @property
    def records_per_batch(self) -> int:
        return self._context.get_global_batch_size()

    def run(self, last_hook: Callable[[Any], Any]) -> None:
        """Train under the control of a hook that runs after all others.

        Args:
            last_hook: makes this hook from the ``EstimatorSpec`` of the training graph.
        """
        self._make_last_hook = last_hook
        with ExitStack() as ending:
            for hook in self._hooks:
                ending.callback(hook.on_trial_close)
            try:
                self._estimator.train(self.session.data, hooks=list(self._specs.train.hooks))
            except Exception:
                _log.error("the trial failed at batch %d (counting from 0)", self.session.batch)
                raise

    def started(self) -> None:
        self.session.share()

    def write_initial_state(self, path: Path, *, most: int) -> int:
        size = self.session.count_bytes()
        if size <= most:
            self.session.save(path)
        return size

    def rehearse(self, together: OnAllWorkers) -> Metrics | None:
        with random_generators.forked_generators(self._seed("validation")):
            return self._validator.rehearse(together)

    def reported(self, metrics: Metrics, batch_metrics: Sequence[Metrics]) -> None:
        self._store_summaries()

    def validate(self, stop: Callable[[], bool]) -> Metrics | None:
        # Separate generators, so that the number of validations does not affect training.
        with random_generators.forked_generators(self._seed("validation")):
            metrics = self._validator.validate(stop)
        self._store_summaries()
        return metrics

    def snapshot(self) -> Callable[[Path], None]:
        self.session.share_aggregated()
        return partial(self._write, self._context.distributed.gather(random_generators.get_generator_states()))

    def load(self, path: Path, *, batches_trained: int) -> None:
        if batches_trained == 0:  # checkpoint of another trial
            names = self._weights()
            self.session.restore_weights(path, names, self._specs.averages[ModeKeys.EVAL])
            return
        state = _read_state(path)
        self.session.restore(path, batches_trained)
        slots, rank = state["generators"], self._context.distributed.rank
        if len(slots) == self._context.distributed.size:
            random_generators.set_generator_states(slots[rank])
        for hook in self._hooks:
            hook.on_checkpoint_load(str(path))

    def metadata(self) -> Mapping[str, Any]:
        return {
            "framework": f"tensorflow-{tf.__version__}",
            "format": "saved_model",
            "trial_framework": "estimator",
        }

    def _seed(self, purpose: str) -> int:
        return random_generators.derive_seed(self._context.get_trial_seed(), purpose)

    def _with_last_hook(self, spec: Any) -> Any:
        spec = spec._replace(train_op=self.session.counted(spec.train_op))
        return spec._replace(training_hooks=(*spec.training_hooks, self._make_last_hook(spec)))

    def _weights(self) -> set[str]:
        """Return the names of the variables that evaluation needs, which excludes those of the optimizer."""
        with tf.Graph().as_default():
            v1.set_random_seed(self._context.get_trial_seed())
            step = v1.train.create_global_step()
            batch = v1.data.make_initializable_iterator(self._specs.validation_dataset()).get_next()
            features, labels = batch if isinstance(batch, tuple) else (batch, None)
            self._estimator.model_fn(features, labels, ModeKeys.EVAL, self._estimator.config)
            return {variable.op.name for variable in v1.global_variables()} - {step.op.name}

    def _write(self, slots: Sequence[Any] | None, path: Path) -> None:
        prefix = self.session.save(path)
        with tf.Graph().as_default():  # because the training graph is final
            exports = self._trial.build_serving_input_receiver_fns()
        with random_generators.forked_generators(self._seed("export")):
            for name, receiver_fn in exports.items():
                self._estimator.export_saved_model(str(path / name), receiver_fn, checkpoint_path=prefix)
            missing = self._averages_not_exported() if exports else {}
        state = {
            "format": _FORMAT,
            "batch": self.session.batch,
            "variables": Path(prefix).name,
            "exports": sorted(exports),
            "averages_not_exported": missing,
            "generators": slots,
        }
        (path / STATE_FILE).write_text(json.dumps(state), encoding="utf-8")
        for hook in self._hooks:
            hook.on_checkpoint_end(str(path))

    def _averages_not_exported(self) -> dict[str, str]:
        """Return the variables that evaluation, unlike the exports, restores from others, with the names of these."""
        averages = self._specs.averages
        if ModeKeys.EVAL not in averages:
            self._weights()  # builds the graph of the evaluation
        missing = dict(averages[ModeKeys.EVAL].items() - averages[ModeKeys.PREDICT].items())
        if missing and not self._warned:
            self._warned = True
            warn_of_other_weights(missing)
        return missing


def _read_state(path: Path) -> dict[str, Any]:
    file = path / STATE_FILE
    if not file.exists():
        raise InvalidTrial(
            f"{path} has no {STATE_FILE}, so it was not saved by det-estimator; start without this checkpoint"
        )
    state = read_object(file)
    if state.get("format") != _FORMAT:
        raise InvalidTrial(
            f"the checkpoint has format {state.get('format')!r:.100}, but this det-estimator reads format {_FORMAT}; "
            f"upgrade: {package_command('upgrade', 'det-estimator')}"
        )
    return state
