"""Plugin hooks of det-torch. Importing this module does not import torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import det_core
from det_core.specs import FrameworkSpec

_LOADING = """\
import torch
state = torch.load("{path}/state_dict.pth", weights_only=True)
model.load_state_dict(state["models_state_dict"][0])"""


@det_core.hookimpl
def det_frameworks() -> Iterator[FrameworkSpec]:
    yield FrameworkSpec(
        name="pytorch",
        target="det_torch._run:run_trial",
        install="pip install torch, then pip install det-torch",
        loading=_LOADING,
        load="det_torch._checkpoints._trial_loading:load_checkpoint",
        exports={
            "safetensors": "det_torch._checkpoints._exports:write_safetensors",
            "state_dict": "det_torch._checkpoints._exports:write_state_dict",
            "dcp": "det_torch._checkpoints._exports:write_dcp",
        },
        old_names=("PyTorchTrial", "torch"),
        starter="det_torch:_starter",
        needs_adapter=True,
        elastic=True,
        prepare=("det_torch._run", "torch._dynamo"),  # which the first optimizer of a process imports
    )


@det_core.hookimpl
def det_choose_framework(mro: Sequence[str]) -> str | None:
    return "pytorch" if "det_torch._trial.PyTorchTrial" in mro else None
