"""Choice of the adapter to `PyTorchTrial` by the options."""

from __future__ import annotations

from det_torch import PyTorchTrialContext
from det_torch.backend import TorchBackend

from det_torch_distributed._fsdp import Shards
from det_torch_distributed._options import Options
from det_torch_distributed._replicas import Replicas

_ADAPTERS: dict[str, type[Replicas | Shards]] = {"none": Replicas, "fsdp": Shards}


def adapter(context: PyTorchTrialContext, options: Options) -> TorchBackend:
    """Return the adapter for the option ``sharding``. Called on each slot before the trial is constructed."""
    return _ADAPTERS[options.sharding](context, options)
