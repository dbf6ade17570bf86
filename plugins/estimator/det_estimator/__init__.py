"""TensorFlow's Estimators for det: write an `EstimatorTrial`, det trains it. TensorFlow is imported on first use."""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # importing typing would be most of this module's cost

if TYPE_CHECKING:
    from typing import Any

    from det_estimator._context import EstimatorExperimentalContext as EstimatorExperimentalContext
    from det_estimator._context import EstimatorTrialContext as EstimatorTrialContext
    from det_estimator._load import load_estimator_from_checkpoint_path as load_estimator_from_checkpoint_path
    from det_estimator._reducer import MetricReducer as MetricReducer
    from det_estimator._run_hook import RunHook as RunHook
    from det_estimator._trial import EstimatorTrial as EstimatorTrial

# Name -> the module that defines it (PEP 562); the block above repeats it for type checkers.
_EXPORTS = {
    "EstimatorExperimentalContext": "det_estimator._context",
    "EstimatorTrial": "det_estimator._trial",
    "EstimatorTrialContext": "det_estimator._context",
    "MetricReducer": "det_estimator._reducer",
    "RunHook": "det_estimator._run_hook",
    "load_estimator_from_checkpoint_path": "det_estimator._load",
}

__all__ = ["__version__", *sorted(_EXPORTS)]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    import_module("det_tensorflow.required")
    value = getattr(import_module(_EXPORTS[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
