"""Entry point for training a JaxTrial in a worker process."""

from __future__ import annotations

from det_core.core import Context
from det_core.trial import TrialContext, TrialLoop
from det_core.trial.random_generators import seed_generators
from det_core.trial.trial_description import describe_trial
from det_jax._adapter import JaxAdapter
from det_jax._trial import JaxTrial


def run_trial(trial_class: type[JaxTrial], core_context: Context) -> None:
    """Train one trial from its latest checkpoint to its end, or until it is preempted.

    Raises:
        InvalidTrial: the trial is incomplete, or its data cannot be used.
    """
    seed_generators(core_context.trial.trial_seed)
    context = TrialContext.from_core(core_context)
    adapter = JaxAdapter(trial_class(context), context, describe_trial(trial_class, core_context))
    TrialLoop(adapter, core_context, context).run()
