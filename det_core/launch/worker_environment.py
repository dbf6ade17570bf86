"""Environment of workers: variables of the cluster, search path and thread limits."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from det_core.home import MASTER_VARIABLES
from det_core.interfaces.launcher import PYTHON
from det_core.launch.output_lines import RANK_TEMPLATE
from det_core.tracking import AGENT_URL
from det_core.tracking.access_tokens import TOKEN_VARIABLE

AGENT_STORE_VARIABLES: Mapping[str, str] = {**dict.fromkeys(MASTER_VARIABLES, AGENT_URL), TOKEN_VARIABLE: ""}
"""Variables that lead the SDK and the command line to the store of the runner, without a token."""
_LAUNCHER = "det_core.launch"
"""Module that starts the workers of a node. Its first argument is the name of the backend."""
_THREADS = "OMP_NUM_THREADS"
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


def find_backend(argv: Sequence[str]) -> str | None:
    """Return the name of the backend that starts the workers of a trial class, or None if there is only one worker.

    Args:
        argv: command line of the launch.
    """
    return argv[3] if tuple(argv[:3]) == (PYTHON, "-m", _LAUNCHER) else None


def make_lasting_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of workers without the variables that describe a single launch.

    All workers of an experiment on a machine share it.

    Args:
        env: the variables that the launcher and the config set.
    """
    return {
        **os.environ,
        "PATH": make_search_path(),
        "PYTHONUNBUFFERED": "1",
        "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": RANK_TEMPLATE,
        **env,
    }


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


def make_search_path() -> str:
    """Return ``PATH`` with this interpreter's directory first, so that ``python3`` has the packages that det has."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def thread_limit_variables(slots: int, cpus: int | None = None) -> dict[str, str]:
    """Return the environment variable that limits the threads of each worker.

    A value that is already set is kept, unless the number of cores is given. OpenMP threads wait for each other in busy
    loops, so workers that have more threads than there are cores train at a fraction of their speed.

    Args:
        slots: maximum number of workers that share the cores.
        cpus: number of these cores. By default, those that this process may use.
    """
    kept = None if cpus else os.environ.get(_THREADS)
    return {_THREADS: kept or str(max(1, (cpus or len(os.sched_getaffinity(0))) // slots))}
