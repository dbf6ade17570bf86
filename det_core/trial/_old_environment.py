"""``context.env`` of earlier releases."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from det_core.trial._trial_context import TrialContext


class OldEnvironment(SimpleNamespace):
    """Facts about a trial that code in old checkpoints reads, and may set. Setting them has no effect.

    Args:
        context: context of the trial.
    """

    def __init__(self, context: TrialContext) -> None:
        super().__init__(
            experiment_config=context.get_experiment_config(),
            hparams=context.get_hparams(),
            trial_seed=context.get_trial_seed(),
            det_experiment_id=str(context.get_experiment_id()),
            det_trial_id=str(context.get_trial_id()),
            managed_training=bool(context.get_trial_id()),
            container_gpus=[],
            slot_ids=[],
        )

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"context.env has no attribute {name!r}; it has {', '.join(sorted(vars(self)))}. Use the methods of the "
            "context instead, such as get_hparams() and get_experiment_config()",
            name=name,
            obj=self,
        )
