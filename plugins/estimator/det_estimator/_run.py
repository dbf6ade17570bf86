"""Entry point for training an EstimatorTrial in a worker process."""

from __future__ import annotations

from contextlib import ExitStack, closing
from functools import partial
from typing import Any

import tensorflow as tf
from det_tensorflow import devices
from det_tensorflow.backend import make_tensorflow_backend

from det_core.core import Context
from det_core.errors import InvalidTrial
from det_core.trial import TrialLoop, random_generators, tensorboard_upload
from det_estimator._adapter import EstimatorAdapter
from det_estimator._context import EstimatorTrialContext
from det_estimator._control_hook import ControlHook
from det_estimator._trial import EstimatorTrial


def run_trial(trial_class: type[EstimatorTrial], core_context: Context) -> None:
    """Train one trial from its latest checkpoint to its end, or until it is preempted.

    Raises:
        InvalidTrial: the trial is incomplete, contradicts itself, or has no training data.
    """
    random_generators.seed_generators(core_context.trial.trial_seed)
    context = EstimatorTrialContext.from_core(core_context)
    devices.set_visible_gpu(context)
    with ExitStack() as ending:
        store_summaries = partial(tensorboard_upload.upload_tensorboard_files, core_context.train)
        ending.callback(store_summaries)
        ending.callback(tf.compat.v1.summary.FileWriterCache.clear)  # flushes all writers and ends their threads
        context.backend = ending.enter_context(closing(make_tensorflow_backend("estimator", context)))
        ending.enter_context(context.backend.training())
        adapter = EstimatorAdapter(trial_class(context), context, store_summaries)
        loop = TrialLoop(adapter, core_context, context)
        chunks = ending.enter_context(closing(loop.chunks()))
        controls: list[ControlHook] = []

        def last_hook(spec: Any) -> ControlHook:
            controls.append(ControlHook(spec, adapter.session, context, loop, chunks))
            return controls[-1]

        adapter.run(last_hook)
        if not controls[-1].finished:
            raise InvalidTrial(
                f"the training data ended at batch {adapter.session.batch}, although det repeats it; is it empty?"
            )
