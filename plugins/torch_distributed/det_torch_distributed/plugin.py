"""Plugin hooks of det-torch-distributed. Importing this module does not import torch."""

from __future__ import annotations

from collections.abc import Iterator

import det_core
from det_core.specs import BackendSpec


@det_core.hookimpl
def det_backends() -> Iterator[BackendSpec]:
    yield BackendSpec(
        name="torch_distributed",
        target="det_torch.torchrun:Torchrun",
        config_model="det_torch_distributed._options:TorchDistributedOptions",
        adapters={"pytorch": "det_torch_distributed._adapter:choose_torch_adapter"},
        install="pip install torch, then pip install det-torch-distributed",
        elastic=True,
        prepare=("det_torch.torchrun_process", "det_torch_distributed._adapter"),
    )
