"""Experimental context of a trial, ``context.experimental``, as in the original."""

from __future__ import annotations

from typing import TYPE_CHECKING

from det_core.errors import InvalidTrial
from det_torch._amp import MixedPrecision

if TYPE_CHECKING:
    from det_torch._context import PyTorchTrialContext


class PyTorchExperimentalContext:
    """Options to set in the ``__init__`` of a trial, and old places of methods such as ``wrap_reducer``."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        self._context = context
        self.wrap_reducer = context.wrap_reducer
        """Old place of `PyTorchTrialContext.wrap_reducer`."""
        self.reduce_metrics = context.reduce_metrics
        """Old place of `PyTorchTrialContext.reduce_metrics`."""
        self.reset_reducers = context.reset_reducers
        """Old place of `PyTorchTrialContext.reset_reducers`."""

    def use_amp(self) -> None:
        """Train and evaluate in mixed precision, like ``optimizations.mixed_precision: O1`` in the config.

        Forward passes run under autocast, with float16 on CUDA and bfloat16 elsewhere. With float16, the loss is scaled
        in `backward`, and steps with infinite gradients are skipped. Weights and optimizer state are float32.

        Raises:
            InvalidTrial: `wrap_scaler` was called, which is for trials that implement mixed precision themselves.
        """
        context = self._context
        if context._wrapped_scaler:
            raise InvalidTrial(
                "use_amp() scales losses by itself, but the trial called wrap_scaler(); drop one of them"
            )
        context._amp = context._amp or MixedPrecision(context.device)

    def disable_auto_to_device(self) -> None:
        """Pass batches to ``train_batch`` and ``evaluate_batch`` without moving them to the device.

        The trial moves data to the device itself with ``context.to_device``.
        """
        self._context._moves_batches = False

    def disable_dataset_reproducibility_checks(self) -> None:
        """Use data loaders unchanged if they shuffle, repeat, skip and split their batches among slots themselves.

        The training loader must then yield the batches of this slot without end, from ``context.get_initial_batch()``
        on, and the validation loader must yield the batches of this slot. Without this call, det does all this for any
        loader.
        """
        self._context._data_as_is = True
