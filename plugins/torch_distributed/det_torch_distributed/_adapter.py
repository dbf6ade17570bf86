"""Choice of the adapter to `PyTorchTrial` by the options."""

from __future__ import annotations

from det_torch import PyTorchTrialContext
from det_torch.backend import TorchBackend

from det_torch_distributed._ddp import DDPBackend
from det_torch_distributed._fsdp import FSDPBackend
from det_torch_distributed._options import TorchDistributedOptions

_ADAPTERS: dict[str, type[DDPBackend | FSDPBackend]] = {"none": DDPBackend, "fsdp": FSDPBackend}


def choose_torch_adapter(context: PyTorchTrialContext, options: TorchDistributedOptions) -> TorchBackend:
    """Return the adapter for the option ``sharding``. Called on each slot before the trial is constructed."""
    return _ADAPTERS[options.sharding](context, options)
