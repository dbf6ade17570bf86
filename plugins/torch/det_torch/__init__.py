"""PyTorch plugin of det, which trains a `PyTorchTrial`. Names, and torch with them, are imported on first use."""

from __future__ import annotations

from det_core.lazy import lazy_exports

__version__ = "0.1.0"

TYPE_CHECKING = False  # importing typing would take most of this module's import time

if TYPE_CHECKING:
    from det_torch._batch_reduction import Reducer as Reducer
    from det_torch._callback import PyTorchCallback as PyTorchCallback
    from det_torch._checkpoints._trial_loading import load as load
    from det_torch._checkpoints._trial_loading import load_trial_from_checkpoint_path as load_trial_from_checkpoint_path
    from det_torch._context import PyTorchExperimentalContext as PyTorchExperimentalContext
    from det_torch._context import PyTorchTrialContext as PyTorchTrialContext
    from det_torch._data import DataLoader as DataLoader
    from det_torch._data import TorchData as TorchData
    from det_torch._data import to_device as to_device
    from det_torch._gradient_clipping import ClipGradsL2Norm as ClipGradsL2Norm
    from det_torch._gradient_clipping import ClipGradsL2Value as ClipGradsL2Value
    from det_torch._lr_scheduler import LRScheduler as LRScheduler
    from det_torch._metric_reducer import MetricReducer as MetricReducer
    from det_torch._tensorboard import TorchWriter as TorchWriter
    from det_torch._train_units import Batch as Batch
    from det_torch._train_units import Epoch as Epoch
    from det_torch._train_units import Record as Record
    from det_torch._train_units import TrainUnit as TrainUnit
    from det_torch._trainer import Trainer as Trainer
    from det_torch._trainer import init as init
    from det_torch._trial import PyTorchTrial as PyTorchTrial
    from det_torch._trial import reset_parameters as reset_parameters

# Exported name -> module that defines it (PEP 562). The block above repeats these for type checkers.
_EXPORTS = {
    "Batch": "det_torch._train_units",
    "ClipGradsL2Norm": "det_torch._gradient_clipping",
    "ClipGradsL2Value": "det_torch._gradient_clipping",
    "DataLoader": "det_torch._data",
    "Epoch": "det_torch._train_units",
    "LRScheduler": "det_torch._lr_scheduler",
    "MetricReducer": "det_torch._metric_reducer",
    "PyTorchCallback": "det_torch._callback",
    "PyTorchExperimentalContext": "det_torch._context",
    "PyTorchTrial": "det_torch._trial",
    "PyTorchTrialContext": "det_torch._context",
    "Record": "det_torch._train_units",
    "Reducer": "det_torch._batch_reduction",
    "TorchData": "det_torch._data",
    "TorchWriter": "det_torch._tensorboard",
    "TrainUnit": "det_torch._train_units",
    "Trainer": "det_torch._trainer",
    "init": "det_torch._trainer",
    "load": "det_torch._checkpoints._trial_loading",
    "load_trial_from_checkpoint_path": "det_torch._checkpoints._trial_loading",
    "reset_parameters": "det_torch._trial",
    "to_device": "det_torch._data",
}

__all__ = ["__version__", *sorted(_EXPORTS)]

__getattr__, __dir__ = lazy_exports(globals(), _EXPORTS, first="det_torch._mkl")  # must run before user code computes
