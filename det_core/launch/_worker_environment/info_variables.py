"""Environment variables with the content of the info files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from det_core.home import MASTER_VARIABLES
from det_core.tracking import AGENT_URL
from det_core.tracking.access_tokens import TOKEN_VARIABLE

AGENT_STORE_VARIABLES: Mapping[str, str] = {**dict.fromkeys(MASTER_VARIABLES, AGENT_URL), TOKEN_VARIABLE: ""}
"""Variables that lead the SDK and the command line to the store of the runner, without a token."""
_MAX_BYTES = 131_072
"""Maximum size of an environment string in bytes, with its name and final NUL (execve(2), MAX_ARG_STRLEN)."""

_VARIABLES = {
    "cluster.json": {
        "DET_CLUSTER_ID": "cluster_id",
        "DET_AGENT_ID": "agent_id",
        "DET_SLOT_IDS": "slot_ids",
        "DET_TASK_ID": "task_id",
        "DET_TASK_TYPE": "task_type",
        "DET_ALLOCATION_ID": "allocation_id",
        "DET_LATEST_CHECKPOINT": "latest_checkpoint",
    },
    "trial.json": {
        "DET_TRIAL_ID": "trial_id",
        "DET_EXPERIMENT_ID": "experiment_id",
        "DET_TRIAL_SEED": "trial_seed",
        "DET_TRIAL_RUN_ID": "trial_run_id",
        "DET_STEPS_COMPLETED": "steps_completed",
        "DET_HPARAMS": "hparams",
        "DET_EXPERIMENT_CONFIG": "config",
    },
}
"""Key of each variable in its info file, by file and variable."""


def make_info_variables(info: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the environment variables of a command.

    Texts are passed as they are, other values as JSON. Variables without a value are omitted. If the workers call the
    tracking store through their agent, so do the SDK and the command line.

    Args:
        info: the info files, as `LaunchRequest.info`.
    """
    values = {
        name: info[file][key]
        for file, names in _VARIABLES.items()
        for name, key in names.items()
        if info.get(file, {}).get(key) is not None
    }
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
    is_relayed = info.get("cluster.json", {}).get("master_url") == AGENT_URL
    return {**texts, **AGENT_STORE_VARIABLES} if is_relayed else texts


def find_oversized_variables(variables: Mapping[str, str]) -> list[str]:
    """Return the names of the variables that are too long to start a process with."""
    return [name for name, value in variables.items() if len(f"{name}={value}\0".encode()) > _MAX_BYTES]
