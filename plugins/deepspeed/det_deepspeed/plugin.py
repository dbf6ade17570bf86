"""Plugin module of det-deepspeed. Importing it does not import torch."""

from __future__ import annotations

from collections.abc import Iterator

import det_core
from det_core.specs import BackendSpec


@det_core.hookimpl
def det_backends() -> Iterator[BackendSpec]:
    yield BackendSpec(
        name="deepspeed",
        target="det_torch.torchrun:Torchrun",
        config_model="det_deepspeed._options:DeepSpeedOptions",
        adapters={"pytorch": "det_deepspeed._adapter:make_deepspeed_adapter"},
        install="pip install torch, then pip install det-deepspeed",
        elastic=True,
        prepare=("det_torch.torchrun_process",),
    )
