"""PyTorch for det: write a `PyTorchTrial`, det trains it. Every name is imported, and torch with it, on first use."""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # importing typing would be most of this module's cost

if TYPE_CHECKING:
    from typing import Any

    from det_torch._context import PyTorchTrialContext as PyTorchTrialContext
    from det_torch._data import DataLoader as DataLoader
    from det_torch._data import TorchData as TorchData
    from det_torch._lr_scheduler import LRScheduler as LRScheduler
    from det_torch._reducer import Reducer as Reducer
    from det_torch._trial import PyTorchTrial as PyTorchTrial

# Name -> the module that defines it (PEP 562); the block above repeats it for type checkers.
_EXPORTS = {
    "DataLoader": "det_torch._data",
    "LRScheduler": "det_torch._lr_scheduler",
    "PyTorchTrial": "det_torch._trial",
    "PyTorchTrialContext": "det_torch._context",
    "Reducer": "det_torch._reducer",
    "TorchData": "det_torch._data",
}

__all__ = ["__version__", *sorted(_EXPORTS)]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    import_module("det_torch._mkl")  # before anything of the user's computes
    value = getattr(import_module(_EXPORTS[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
