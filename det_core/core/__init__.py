"""Core API, with which a training process reports metrics, saves checkpoints and reacts to preemption."""

from __future__ import annotations

from typing import TYPE_CHECKING

from det_core.core._checkpoints._context import CheckpointContext, DownloadMode
from det_core.core._context import Context, init
from det_core.core._distributed import DistributedContext, single_process
from det_core.core._preempt import PreemptContext, PreemptMode
from det_core.core._searcher_operations import SearcherContext, SearcherMode, SearcherOperation
from det_core.core._storage_block import open_storage_block
from det_core.core._tensorboard import TensorboardMode
from det_core.core._train import EarlyExitReason, TrainContext
from det_core.lazy import lazy_exports

if TYPE_CHECKING:
    from det_core.config import Unit
    from det_core.core._experimental import ExperimentalCoreContext
    from det_core.core._profiler import ProfilerContext

__all__ = [
    "CheckpointContext",
    "Context",
    "DistributedContext",
    "DownloadMode",
    "EarlyExitReason",
    "ExperimentalCoreContext",
    "PreemptContext",
    "PreemptMode",
    "ProfilerContext",
    "SearcherContext",
    "SearcherMode",
    "SearcherOperation",
    "TensorboardMode",
    "TrainContext",
    "Unit",
    "init",
    "open_storage_block",
    "single_process",
]

__getattr__, __dir__ = lazy_exports(
    globals(),
    {
        "ExperimentalCoreContext": "det_core.core._experimental",
        "ProfilerContext": "det_core.core._profiler",
        "Unit": "det_core.config",
    },
)  # imported lazily, because few scripts need them
