"""Adapter of DeepSpeed to PyTorchTrial."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING

from det_torch import PyTorchTrialContext

from det_deepspeed._options import DeepSpeedOptions

if TYPE_CHECKING:
    from det_deepspeed._torch_backend import DeepSpeedBackend


def make_deepspeed_adapter(context: PyTorchTrialContext, options: DeepSpeedOptions) -> DeepSpeedBackend:
    """Import DeepSpeed and return the adapter. Each slot calls this before it constructs the trial."""
    # DeepSpeed chooses its device on import, and det's device is known only here.
    os.environ.setdefault("DS_ACCELERATOR", context.device.type)
    from deepspeed import ops

    from det_deepspeed._torch_backend import DeepSpeedBackend

    # It would be compiled at the first start, and a worker killed meanwhile would leave a lock that blocks all others.
    ops.__compatible_ops__["deepspeed_shm_comm"] = False
    # DeepSpeed itself calls these functions, so users cannot fix the warnings.
    warnings.filterwarnings("ignore", r"`torch\.distributed\.\w+` is deprecated", FutureWarning)
    return DeepSpeedBackend(context, options)
