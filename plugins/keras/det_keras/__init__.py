"""Training of Keras models with det, as `TFKerasTrial`. TensorFlow is imported on first use."""

from __future__ import annotations

from det_core.lazy import lazy_exports

__version__ = "0.1.0"

TYPE_CHECKING = False  # importing typing would be most of this module's cost

if TYPE_CHECKING:
    from det_keras._context import TFKerasTrialContext as TFKerasTrialContext
    from det_keras._data import InputData as InputData
    from det_keras._load import load_model_from_checkpoint_path as load_model_from_checkpoint_path
    from det_keras._sequences import SequenceAdapter as SequenceAdapter
    from det_keras._trial import TFKerasTrial as TFKerasTrial
    from det_keras.callbacks import TFKerasTensorBoard as TFKerasTensorBoard

# Name -> the module that defines it (PEP 562). The block above repeats it for type checkers.
_EXPORTS = {
    "callbacks": "det_keras.callbacks",
    "InputData": "det_keras._data",
    "SequenceAdapter": "det_keras._sequences",
    "TFKerasTensorBoard": "det_keras.callbacks",
    "TFKerasTrial": "det_keras._trial",
    "TFKerasTrialContext": "det_keras._context",
    "load_model_from_checkpoint_path": "det_keras._load",
}

__all__ = ["__version__", *sorted(_EXPORTS)]

__getattr__, __dir__ = lazy_exports(
    globals(), _EXPORTS, first="det_tensorflow.version_check"
)  # its error says what to install
