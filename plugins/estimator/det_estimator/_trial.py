"""Base class of trials. Importing this module turns on the behaviour of TensorFlow 1, which Estimators need."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from det_core.trial import Trial
from det_estimator._context import EstimatorTrialContext

if tf.inside_function():
    raise ImportError(
        "EstimatorTrial was imported inside a tf.function, where the behaviour of TensorFlow 1 cannot be turned on; "
        "import it at the top of the module"
    )
tf.compat.v1.disable_v2_behavior()


class EstimatorTrial(Trial):
    """Base class for trials that train a ``tf.estimator.Estimator``.

    Importing this class disables TensorFlow's V2 behaviour in the whole process.
    """

    trial_context_class = EstimatorTrialContext

    def __init__(self, context: EstimatorTrialContext) -> None:
        self.context = context
        """The context that the trial was made with."""

    @abstractmethod
    def build_estimator(self) -> Any:
        """Return the ``tf.estimator.Estimator``, a premade one or your own.

        In its ``RunConfig``, det sets the seed and the GPU of this slot, sets the model directory to
        ``context.get_tensorboard_path()``, and turns off TensorFlow's own checkpoints.
        """

    @abstractmethod
    def build_train_spec(self) -> Any:
        """Return a ``tf.estimator.TrainSpec``.

        Its ``input_fn`` returns a dataset that was passed to ``context.wrap_dataset``, in batches of
        ``context.get_per_slot_batch_size()``. det repeats it forever. The config sets the length of the training, and
        ``max_steps`` is ignored. Hooks may derive from `RunHook`.
        """

    @abstractmethod
    def build_validation_spec(self) -> Any:
        """Return a ``tf.estimator.EvalSpec``, whose ``input_fn`` returns a dataset passed to ``context.wrap_dataset``.

        Each slot evaluates ``steps`` batches, or all of its data if ``steps`` is None. TensorFlow's default is 100.
        """

    def build_serving_input_receiver_fns(self) -> dict[str, Callable[[], Any]]:
        """Return serving input receiver functions by name.

        Every checkpoint contains a SavedModel for each function, below ``NAME/``.
        """
        return {}
