"""The Core API: everything a training process needs to report, checkpoint and be preempted."""

from __future__ import annotations

from det_core.core._checkpoint import CheckpointContext
from det_core.core._context import Context, default_storage, init
from det_core.core._distributed import DistributedContext
from det_core.core._preempt import PreemptContext
from det_core.core._train import EarlyExitReason, TrainContext

__all__ = [
    "CheckpointContext",
    "Context",
    "DistributedContext",
    "EarlyExitReason",
    "PreemptContext",
    "TrainContext",
    "default_storage",
    "init",
]
