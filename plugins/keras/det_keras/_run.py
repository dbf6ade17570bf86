"""Entry point for training a TFKerasTrial in a worker process."""

from __future__ import annotations

from contextlib import closing

import det_tensorflow.version_check  # noqa: F401  (first, because its error says what to install)
from det_tensorflow import devices
from det_tensorflow.backend import make_tensorflow_backend

from det_core.core import Context
from det_core.trial import TrialLoop, trial_description
from det_keras import _session_config
from det_keras._adapter import KerasAdapter
from det_keras._context import TFKerasTrialContext
from det_keras._random import seed_all
from det_keras._trial import TFKerasTrial


def run_trial(trial_class: type[TFKerasTrial], core_context: Context) -> None:
    """Train one trial from its latest checkpoint to its end, or until it is preempted.

    Raises:
        InvalidTrial: the trial is incomplete, or its data cannot be used.
    """
    seed_all(core_context.trial.trial_seed)
    context = TFKerasTrialContext.from_core(core_context)
    devices.set_visible_gpu(context)
    with closing(make_tensorflow_backend("keras", context)) as context.backend, context.backend.training():
        trial = trial_class(context)
        _session_config.apply_session_config(trial.session_config())
        adapter = KerasAdapter(trial, context, description=trial_description.describe_trial(trial_class, core_context))
        TrialLoop(adapter, core_context, context).run()
