"""Training of TensorFlow's Estimators with det, as `EstimatorTrial`. TensorFlow is imported on first use."""

from __future__ import annotations

from det_core.lazy import lazy_exports

__version__ = "0.1.0"

TYPE_CHECKING = False  # importing typing would be most of this module's cost

if TYPE_CHECKING:
    from det_estimator._context import EstimatorExperimentalContext as EstimatorExperimentalContext
    from det_estimator._context import EstimatorTrialContext as EstimatorTrialContext
    from det_estimator._load import load_estimator_from_checkpoint_path as load_estimator_from_checkpoint_path
    from det_estimator._metric_reducer import MetricReducer as MetricReducer
    from det_estimator._run_hook import RunHook as RunHook
    from det_estimator._trial import EstimatorTrial as EstimatorTrial

# Name -> the module that defines it (PEP 562). The block above repeats it for type checkers.
_EXPORTS = {
    "EstimatorExperimentalContext": "det_estimator._context",
    "EstimatorTrial": "det_estimator._trial",
    "EstimatorTrialContext": "det_estimator._context",
    "MetricReducer": "det_estimator._metric_reducer",
    "RunHook": "det_estimator._run_hook",
    "load_estimator_from_checkpoint_path": "det_estimator._load",
}

__all__ = ["__version__", *sorted(_EXPORTS)]

__getattr__, __dir__ = lazy_exports(
    globals(), _EXPORTS, first="det_tensorflow.version_check"
)  # its error says what to install
