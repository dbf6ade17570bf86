"""Public names of det. Each is imported on first use."""

from __future__ import annotations

from det_core.lazy import lazy_exports

LOG_FORMAT = "%(levelname)s: %(name)s: %(message)s"
"""Log format of the processes that det starts.

Scripts can use it, too: ``logging.basicConfig(format=LOG_FORMAT)``."""

TYPE_CHECKING = False  # importing typing would be most of this module's cost

if TYPE_CHECKING:
    from det_core import core as core
    from det_core import experimental as experimental
    from det_core.core._cluster_info import ClusterInfo as ClusterInfo
    from det_core.core._cluster_info import RendezvousInfo as RendezvousInfo
    from det_core.core._cluster_info import TrialInfo as TrialInfo
    from det_core.core._cluster_info import get_cluster_info as get_cluster_info
    from det_core.errors import InvalidHP as InvalidHP
    from det_core.plugins import hookimpl as hookimpl
    from det_core.trial import Trial as Trial
    from det_core.trial import TrialContext as TrialContext
    from det_core.trial.trial_description import import_from_path as import_from_path
    from det_core.version import __version__ as __version__

# Name -> the module that defines it (PEP 562); the block above repeats it for type checkers.
_EXPORTS = {
    "core": "det_core.core",
    "experimental": "det_core.experimental",
    "ClusterInfo": "det_core.core._cluster_info",
    "InvalidHP": "det_core.errors",
    "RendezvousInfo": "det_core.core._cluster_info",
    "Trial": "det_core.trial",
    "TrialContext": "det_core.trial",
    "TrialInfo": "det_core.core._cluster_info",
    "__version__": "det_core.version",
    "get_cluster_info": "det_core.core._cluster_info",
    "hookimpl": "det_core.plugins",
    "import_from_path": "det_core.trial.trial_description",
}

__all__ = ["LOG_FORMAT", *sorted(_EXPORTS)]

__getattr__, __dir__ = lazy_exports(globals(), _EXPORTS)
