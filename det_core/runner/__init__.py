"""Execution of recorded experiments, with their search method, launcher and restarts.

The runner is a library. The CLI calls it in its own process or starts it as a detached process. Its whole state is in
the tracking store, so another runner can take over after it was killed.
"""

from __future__ import annotations

from det_core.core.checkpoint_removal import remove_checkpoint, remove_tensorboard_files
from det_core.runner._background import continue_in_background as continue_in_background
from det_core.runner._background import resume_in_background as resume_in_background
from det_core.runner._background import train_in_background as train_in_background
from det_core.runner._checkpoint_deletion import check_deletable, delete_checkpoints
from det_core.runner._checkpoint_deletion import is_latest_checkpoint as is_latest_checkpoint
from det_core.runner._code_checks import check_code as check_code
from det_core.runner._continuation import continue_experiment, fork_experiment
from det_core.runner._detached import start_detached
from det_core.runner._experiment_runner import ExperimentRunner
from det_core.runner._launch_request import build_run_info
from det_core.runner._server_storage import explain_storage as explain_storage
from det_core.runner._server_storage import use_server_storage as use_server_storage
from det_core.runner._submit import submit_experiment

__all__ = [
    "ExperimentRunner",
    "build_run_info",
    "check_deletable",
    "continue_experiment",
    "delete_checkpoints",
    "fork_experiment",
    "remove_checkpoint",
    "remove_tensorboard_files",
    "start_detached",
    "submit_experiment",
]
