"""Keras for det: write a `TFKerasTrial`, det trains it. Names are imported, and TensorFlow with them, on first use."""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # importing typing would be most of this module's cost

if TYPE_CHECKING:
    from typing import Any

    from det_keras._context import TFKerasTrialContext as TFKerasTrialContext
    from det_keras._data import InputData as InputData
    from det_keras._load import load_model_from_checkpoint_path as load_model_from_checkpoint_path
    from det_keras._sequences import SequenceAdapter as SequenceAdapter
    from det_keras._trial import TFKerasTrial as TFKerasTrial
    from det_keras.callbacks import TFKerasTensorBoard as TFKerasTensorBoard

# Name -> the module that defines it (PEP 562); the block above repeats it for type checkers.
_EXPORTS = {
    "InputData": "det_keras._data",
    "SequenceAdapter": "det_keras._sequences",
    "TFKerasTensorBoard": "det_keras.callbacks",
    "TFKerasTrial": "det_keras._trial",
    "TFKerasTrialContext": "det_keras._context",
    "load_model_from_checkpoint_path": "det_keras._load",
}

__all__ = ["__version__", "callbacks", *sorted(_EXPORTS)]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    import_module("det_tensorflow.required")  # which says what to install
    if name == "callbacks":
        return import_module("det_keras.callbacks")
    value = getattr(import_module(_EXPORTS[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
