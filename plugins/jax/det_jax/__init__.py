"""Training of JAX models with det, as `JaxTrial`. JAX is imported on first use."""

from __future__ import annotations

from det_core.lazy import lazy_exports

__version__ = "0.1.0"

TYPE_CHECKING = False  # importing typing would be most of this module's cost

if TYPE_CHECKING:
    from det_jax._data import Arrays as Arrays
    from det_jax._load import load_state_from_checkpoint_path as load_state_from_checkpoint_path
    from det_jax._trial import JaxTrial as JaxTrial

# Name -> the module that defines it (PEP 562). The block above repeats it for type checkers.
_EXPORTS = {
    "Arrays": "det_jax._data",
    "JaxTrial": "det_jax._trial",
    "load_state_from_checkpoint_path": "det_jax._load",
}

__all__ = ["__version__", *sorted(_EXPORTS)]

__getattr__, __dir__ = lazy_exports(globals(), _EXPORTS)
