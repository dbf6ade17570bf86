"""Environment that all workers of an experiment on a machine share."""

from __future__ import annotations

import os
from collections.abc import Mapping

from det_core.launch._output_lines import RANK_TEMPLATE
from det_core.launch._worker_environment.search_path import make_search_path


def make_lasting_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of workers without the variables that describe a single launch.

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
