"""The class that users derive from. Importing it turns the behaviour of TensorFlow 1 on, which Estimators need."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from det_core.trial import Trial
from det_estimator._context import EstimatorTrialContext

if tf.inside_function():
    raise ImportError(
        "EstimatorTrial was imported inside of a tf.function, where the behaviour of TensorFlow 1 cannot be turned on; "
        "import it at the top of the module"
    )
tf.compat.v1.disable_v2_behavior()


class EstimatorTrial(Trial):
    """A ``tf.estimator.Estimator``, its data and how long to evaluate it.

    Importing this class disables TensorFlow's V2 behaviour in the whole process.
    """

    trial_context_class = EstimatorTrialContext

    def __init__(self, context: EstimatorTrialContext) -> None:
        self.context = context

    @abstractmethod
    def build_estimator(self) -> Any:
        """The ``tf.estimator.Estimator``, a premade one or your own.

        Of its ``RunConfig``, det sets the model directory, which is ``context.get_tensorboard_path()``, the seed, the
        GPU of this slot, and that no checkpoints are made other than det's.
        """

    @abstractmethod
    def build_train_spec(self) -> Any:
        """A ``tf.estimator.TrainSpec``.

        Its ``input_fn`` returns a dataset that went through ``context.wrap_dataset``, in batches of
        ``context.get_per_slot_batch_size()``; det repeats it forever. The length of the training is the config's:
        ``max_steps`` is ignored. Hooks may be `RunHook`.
        """

    @abstractmethod
    def build_validation_spec(self) -> Any:
        """A ``tf.estimator.EvalSpec``, whose ``input_fn`` returns a dataset that went through ``context.wrap_dataset``.

        A validation takes ``steps`` batches on each slot, or all there are if that is None. Beware: 100 is its default.
        """

    def build_serving_input_receiver_fns(self) -> dict[str, Callable[[], Any]]:
        """Names to serving input receiver functions: every checkpoint has a SavedModel of each, below ``NAME/``."""
        return {}
