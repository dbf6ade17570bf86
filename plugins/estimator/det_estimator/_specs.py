"""Estimator and specs of a trial, validated and configured for det."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import tensorflow as tf
from det_tensorflow import devices

from det_core.errors import InvalidTrial
from det_estimator._context import EstimatorTrialContext
from det_estimator._data import wrapped_dataset
from det_estimator._trial import EstimatorTrial

_log = logging.getLogger("det.estimator")

_IGNORED = {
    "max_steps": "searcher.max_length of the config sets the length of the training",
    "saving_listeners": "a RunHook's on_checkpoint_end() is called after every checkpoint",
    "exporters": "build_serving_input_receiver_fns() defines what every checkpoint exports",
}
"""Attribute of a spec that det ignores -> what replaces it."""


@dataclass(frozen=True)
class EstimatorSpecs:
    """Estimator and specs that a trial returned."""

    estimator: Any
    """The estimator that the trial built."""
    train: Any
    """The ``TrainSpec``."""
    evaluation: Any
    """The ``EvalSpec``."""
    context: EstimatorTrialContext
    """The context of the trial."""
    averages: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """By mode other than training, the variables that are restored from others in the checkpoint, such as averages."""

    @classmethod
    def of(cls, trial: EstimatorTrial, context: EstimatorTrialContext) -> EstimatorSpecs:
        """Call the methods of the trial that build them.

        Raises:
            InvalidTrial: a method returned something else, or the ``RunConfig`` sets a distribution strategy.
        """
        estimator = _built(trial.build_estimator, tf.compat.v1.estimator.Estimator)
        train = _built(trial.build_train_spec, tf.estimator.TrainSpec)
        evaluation = _built(trial.build_validation_spec, tf.estimator.EvalSpec)
        for name in ("train_distribute", "eval_distribute"):
            if getattr(estimator.config, name) is not None:
                raise InvalidTrial(
                    f"the estimator's RunConfig sets {name}; remove it, and set the number of slots in the experiment "
                    "config: resources: {slots_per_trial: 2}"
                )
        for spec in (train, evaluation):
            for name, instead in _IGNORED.items():
                if getattr(spec, name, None):
                    _log.info("%s of the %s is ignored: %s", name, type(spec).__name__, instead)
        return cls(estimator, train, evaluation, context)

    def rebuilt(self, on_training: Callable[[Any], Any]) -> Any:
        """Return the estimator with det's ``RunConfig``.

        Args:
            on_training: gets the ``EstimatorSpec`` of the training graph, and returns the one to use.
        """
        config = self.estimator.config.replace(
            model_dir=str(self.context.get_tensorboard_path()),
            session_config=devices.make_session_config(self.estimator._session_config, self.context),
            tf_random_seed=self.context.get_trial_seed(),
            save_checkpoints_steps=None,
            save_checkpoints_secs=None,
        )

        def model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
            wrapped = len(self.context.exchanges)
            spec = self.estimator.model_fn(features, labels, mode, config)
            if mode != tf.estimator.ModeKeys.TRAIN:
                del self.context.exchanges[wrapped:]  # because they would keep the graph of every validation alive
                self.averages[mode] = _restored_from_others(spec.scaffold.saver)
                return spec
            self._check_optimizer()
            return on_training(spec)

        return tf.estimator.Estimator(model_fn, config=config, warm_start_from=self.estimator._warm_start_settings)

    def training_dataset(self) -> Any:
        """Return a new training dataset in the default graph.

        Raises:
            InvalidTrial: as for `wrapped_dataset`.
        """
        return self._dataset(self.train, tf.estimator.ModeKeys.TRAIN)

    def validation_dataset(self) -> Any:
        """Return a new validation dataset in the default graph.

        Raises:
            InvalidTrial: as for `wrapped_dataset`.
        """
        return self._dataset(self.evaluation, tf.estimator.ModeKeys.EVAL)

    def _dataset(self, spec: Any, mode: str) -> Any:
        make = partial(self.estimator._call_input_fn, spec.input_fn, mode)
        return wrapped_dataset(make, self.context, type(spec).__name__)

    def _check_optimizer(self) -> None:
        slots = self.context.distributed.size
        aggregation = self.context.get_experiment_config()["optimizations"]["aggregation_frequency"]
        if not self.context.exchanges and (slots > 1 or aggregation > 1):
            raise InvalidTrial(
                f"no optimizer was passed to context.wrap_optimizer(), but the trial trains on {slots} slots with "
                f"optimizations.aggregation_frequency {aggregation}; create the optimizer yourself, instead of naming "
                "one or relying on that of a premade Estimator: optimizer = self.context.wrap_optimizer("
                "tf.compat.v1.train.AdamOptimizer(0.001)), or with tf.keras.optimizers.legacy.Adam(0.001)"
            )


def _built(build: Callable[[], Any], kind: type) -> Any:
    built = build()
    if not isinstance(built, kind):
        raise InvalidTrial(f"{build.__name__}() returned {built!r}; expected a tf.estimator.{kind.__name__}")
    return built


def _restored_from_others(saver: Any) -> Mapping[str, str]:
    """Return the variable in checkpoints from which a saver restores each variable that has another name there."""
    restored = saver and saver._var_list
    if not isinstance(restored, Mapping):
        return {}
    return {own.op.name: name for name, own in restored.items() if isinstance(own, tf.Variable) and own.op.name != name}
