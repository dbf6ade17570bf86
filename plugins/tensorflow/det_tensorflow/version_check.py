"""Check that TensorFlow 2.15 is installed. Import this module before any other that imports TensorFlow."""

from __future__ import annotations

from det_core.package_commands import package_command

_REMEDY = (
    f"install it: {package_command('install', 'det-tensorflow[cpu]')}, "
    "or 'det-tensorflow[gpu]' for CUDA; it needs Python 3.10 or 3.11"
)

try:
    import tensorflow as tf
except ModuleNotFoundError as error:
    if error.name != "tensorflow":
        raise
    raise ImportError(f"TensorFlow is not installed; {_REMEDY}") from error

if tuple(map(int, tf.__version__.split(".")[:2])) != (2, 15):
    raise ImportError(
        f"TensorFlow {tf.__version__} is installed, but det needs 2.15, the last release with Estimators; {_REMEDY}"
    )
