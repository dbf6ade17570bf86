"""From an experiment in the record to trained trials: search method, launcher, restarts.

The runner is a library; the CLI calls it in its own process or detached. All it knows is in the
record, so another runner can take over after it was killed.
"""

from __future__ import annotations

from det_core.runner._detached import start_detached
from det_core.runner._experiment import ExperimentRunner
from det_core.runner._submit import submit

__all__ = ["ExperimentRunner", "start_detached", "submit"]
