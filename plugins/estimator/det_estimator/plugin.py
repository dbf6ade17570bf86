"""Plugin module of det-estimator. Importing it does not import TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import det_core
from det_core.specs import FrameworkSpec

_LOADING = """\
import tensorflow as tf
reader = tf.train.load_checkpoint("{path}")
weights = dict((name, reader.get_tensor(name)) for name in reader.get_variable_to_shape_map())"""


@det_core.hookimpl
def det_frameworks() -> Iterator[FrameworkSpec]:
    yield FrameworkSpec(
        name="estimator",
        target="det_estimator._run:run_trial",
        install="pip install 'det-estimator[cpu]'",
        loading=_LOADING,
        load="det_estimator._load:load_estimator_from_checkpoint_path",
        old_names=("EstimatorTrial", "saved_model"),
        starter="det_estimator:_starter",
        needs_adapter=True,
    )


@det_core.hookimpl
def det_choose_framework(mro: Sequence[str]) -> str | None:
    return "estimator" if "det_estimator._trial.EstimatorTrial" in mro else None
