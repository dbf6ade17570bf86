"""Plugin module of det-keras. Importing it does not import TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import det_core
from det_core.specs import FrameworkSpec

_LOADING = """\
import tensorflow as tf
tf.train.Checkpoint(model=model).restore("{path}/keras").expect_partial()  # model: built as in the trial"""


@det_core.hookimpl
def det_frameworks() -> Iterator[FrameworkSpec]:
    yield FrameworkSpec(
        name="keras",
        target="det_keras._run:run_trial",
        install="pip install 'det-keras[cpu]'",
        loading=_LOADING,
        load="det_keras._load:load_model_from_checkpoint_path",
        old_names=("TFKerasTrial", "saved_weights", "h5"),
        starter="det_keras:_starter",
        needs_adapter=True,
    )


@det_core.hookimpl
def det_choose_framework(mro: Sequence[str]) -> str | None:
    return "keras" if "det_keras._trial.TFKerasTrial" in mro else None
