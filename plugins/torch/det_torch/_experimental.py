"""``context.experimental``: what trials for the original ask there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from det_core.errors import InvalidTrial
from det_torch._amp import MixedPrecision

if TYPE_CHECKING:
    from det_torch._context import PyTorchTrialContext


class PyTorchExperimentalContext:
    """Switches for the ``__init__`` of a trial, and the old place of `PyTorchTrialContext.wrap_reducer`."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        self._context = context
        self.wrap_reducer = context.wrap_reducer
        self.reduce_metrics = context.reduce_metrics
        self.reset_reducers = context.reset_reducers

    def use_amp(self) -> None:
        """Train and evaluate in mixed precision; the same as ``optimizations.mixed_precision: O1`` in the config.

        Forward passes run under autocast: float16 on CUDA, with the loss scaled in `backward` and steps with
        infinite gradients left out, and bfloat16 elsewhere. Weights and optimizer state are float32.

        Raises:
            InvalidTrial: `wrap_scaler` was called, which is for trials that do all this themselves.
        """
        context = self._context
        if context._wrapped_scaler:
            raise InvalidTrial(
                "use_amp() scales losses by itself, but the trial called wrap_scaler(); drop one of them"
            )
        context._amp = context._amp or MixedPrecision(context.device)

    def disable_auto_to_device(self) -> None:
        """Give ``train_batch`` and ``evaluate_batch`` batches as the data loader made them.

        What they need on the device they move with ``context.to_device``.
        """
        self._context._moves_batches = False

    def disable_dataset_reproducibility_checks(self) -> None:
        """Take the data loaders as they are, since they shuffle, repeat, skip and shard by themselves.

        The training loader then yields, without end, the batches of this slot from ``context.get_initial_batch()`` on,
        and the validation loader those of this slot. Without this call det does that, with any kind of loader.
        """
        self._context._data_as_is = True
