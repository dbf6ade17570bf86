"""Entry point of a worker process for `PyTorchTrial` classes."""

from __future__ import annotations

from contextlib import closing

from det_core.core import Context
from det_core.trial import TrialLoop, trial_description
from det_torch._adapter import PyTorchAdapter
from det_torch._context import PyTorchTrialContext
from det_torch._random import seed_all
from det_torch._tensorboard import TrialTensorboard
from det_torch._trial import PyTorchTrial
from det_torch.backend import make_torch_backend
from det_torch.process_group import translate_gloo_errors


def run_trial(trial_class: type[PyTorchTrial], core_context: Context) -> None:
    """Train one trial from its latest checkpoint to its end, or until it is asked to stop."""
    seed_all(core_context.trial.trial_seed)
    context = PyTorchTrialContext.from_core(core_context)
    context._loop.tensorboard = TrialTensorboard(core_context.train)
    with translate_gloo_errors(), closing(make_torch_backend(context)) as context.backend:
        adapter = PyTorchAdapter(
            trial_class(context),
            context,
            description=trial_description.describe_trial(trial_class, core_context),
            first_batch=core_context.trial.steps_completed,
            latest=core_context.latest_checkpoint,
        )
        TrialLoop(adapter, core_context, context).run()
