"""The adapter to `PyTorchTrial`."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING

from det_torch import PyTorchTrialContext

from det_deepspeed._options import Options

if TYPE_CHECKING:
    from det_deepspeed._engines import Engines


def adapter(context: PyTorchTrialContext, options: Options) -> Engines:
    """Made on each slot, before the trial."""
    # When it is imported DeepSpeed decides for a device by itself; det's is known only here.
    os.environ.setdefault("DS_ACCELERATOR", context.device.type)
    from deepspeed import ops

    from det_deepspeed._engines import Engines

    # It would be compiled at the first start, and whoever is killed meanwhile leaves a lock that all others wait for.
    ops.__compatible_ops__["deepspeed_shm_comm"] = False
    # DeepSpeed calls them, so their reader could do nothing about it.
    warnings.filterwarnings("ignore", r"`torch\.distributed\.\w+` is deprecated", FutureWarning)
    return Engines(context, options)
