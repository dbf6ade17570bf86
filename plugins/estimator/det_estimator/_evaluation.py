"""Validation of an EstimatorTrial."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from det_core.errors import InvalidTrial
from det_core.interfaces.framework import Metrics, OnAllWorkers
from det_core.scratch import scratch_directory
from det_core.trial.metric_averages import average_metrics
from det_estimator._context import EstimatorTrialContext
from det_estimator._control_hook import divert_stop

_log = logging.getLogger("det.estimator")


class EvaluationHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Session hook that counts the batches of an evaluation, stops it early, and combines metrics over the slots."""

    def __init__(self, context: EstimatorTrialContext, stop: Callable[[], bool]) -> None:
        self._context = context
        self._stop = stop
        self._batches = 0
        self.left = False
        """Whether the evaluation was stopped early."""
        self.batches: Sequence[int] = ()
        """The number of batches of each slot."""

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._batches += 1
        divert_stop(run_context, self._context)  # so that the trial ends, after this validation
        if self._stop():
            self.left = True
            run_context.request_stop()

    def end(self, session: Any) -> None:
        # This runs before the Estimator fetches the values of the metrics.
        if not self.left:
            self.batches = self._context._settle_metrics(self._batches)
            if not any(self.batches):
                raise InvalidTrial("the validation data has no batch; expected at least one, over all slots")


class Validator:
    """Evaluator of a training session's model.

    Args:
        estimator: the estimator with det's ``RunConfig``.
        spec: the trial's ``EvalSpec``.
        context: the context of the trial.
        input_fn: makes the validation dataset.
        save: writes the variables into a directory and returns the prefix of the files.
    """

    def __init__(
        self,
        estimator: Any,
        spec: Any,
        context: EstimatorTrialContext,
        input_fn: Callable[[], Any],
        save: Callable[[Path], str],
    ) -> None:
        self._estimator, self._spec, self._context = estimator, spec, context
        self._input_fn, self._save = input_fn, save
        self._left_out: set[str] = set()
        """Names of metrics that are not numbers and were already logged as such."""

    def validate(self, stop: Callable[[], bool]) -> Metrics | None:
        """Return the metrics over all slots, or None if ``stop()`` was true after a batch."""
        evaluation = EvaluationHook(self._context, stop)
        with scratch_directory("evaluation") as directory:
            hooks = [*self._spec.hooks, evaluation]
            found = self._evaluated(self._estimator, directory, steps=self._spec.steps, hooks=hooks)
        if evaluation.left:
            return None
        return _mean_over_slots(self._context.distributed.allgather(self._numbers(found)), evaluation.batches)

    def rehearse(self, together: OnAllWorkers) -> Metrics:
        """Return the metrics of one batch on each slot. The trial's hooks do not run, and no summary is kept."""

        def numbers() -> dict[str, float]:
            with scratch_directory("evaluation") as directory:
                silent = _without_hooks(self._estimator, directory)
                try:
                    return self._numbers(self._evaluated(silent, directory, steps=1, hooks=()))
                finally:
                    writers = tf.compat.v1.summary.FileWriterCache
                    writers.get(silent.eval_dir(self._spec.name)).close()  # before its directory is gone

        of_slots = together(numbers)
        return _mean_over_slots(of_slots, [1] * len(of_slots))

    def _evaluated(
        self, estimator: Any, directory: Path, *, steps: int | None, hooks: Sequence[Any]
    ) -> Mapping[str, Any]:
        self._context._accumulators.clear()
        found: Mapping[str, Any] = estimator.evaluate(
            self._input_fn,
            steps=steps,
            hooks=hooks,
            checkpoint_path=self._save(directory),
            name=self._spec.name,
        )
        return found

    def _numbers(self, found: Mapping[str, Any]) -> dict[str, float]:
        numbers = average_metrics([{name: np.asarray(value).tolist() for name, value in found.items()}])
        new = sorted(found.keys() - numbers.keys() - self._left_out)
        if new:
            _log.warning("validation metrics that are not numbers are not reported: %s", ", ".join(new))
            self._left_out.update(new)
        return numbers


def _without_hooks(estimator: Any, directory: Path) -> Any:
    """Return the estimator without the hooks of its ``model_fn``, and with another directory for summaries."""

    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
        return estimator.model_fn(features, labels, mode, config)._replace(evaluation_hooks=())

    return tf.estimator.Estimator(model_fn, config=estimator.config.replace(model_dir=str(directory)))


def _mean_over_slots(of_slots: Sequence[Mapping[str, float]], batches: Sequence[int]) -> dict[str, float]:
    """Return the mean of each metric over the slots, weighted by their numbers of batches."""
    slots = [(metrics, weight) for metrics, weight in zip(of_slots, batches, strict=True) if weight]
    first, _ = slots[0]
    total = sum(weight for _, weight in slots)
    return {
        # A value that is equal on all slots, such as that of make_metric(), is kept without rounding.
        name: value
        if all(metrics[name] == value for metrics, _ in slots)
        else sum(metrics[name] * weight for metrics, weight in slots) / total
        for name, value in first.items()
    }
