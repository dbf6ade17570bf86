"""Process that holds one launch until it ends, ``python -m det_testing.launcher._holder JOB``.

JOB is a JSON object with the ``config`` and the ``key`` of an experiment, and the ``script`` to start.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from det_core.config import parse_config
from det_core.interfaces.launcher import PYTHON
from det_core.launch.launchers import open_launcher
from det_testing.launcher.launcher_suite import INFO, pack_code
from det_testing.launcher.watched_launch import REPORT, WatchedLaunch

_LIMIT = 120.0


def main(job: str) -> int:
    """Start the launch, print its lines, and return its exit code."""
    described = json.loads(job)
    launcher = open_launcher(parse_config(described["config"]))
    launcher.open(described["key"])
    launch = WatchedLaunch(launcher, _LIMIT, **request_fields(described["key"], described["script"]))
    print(REPORT + json.dumps(launch.report()), flush=True)  # noqa: T201
    return launch.ended().code


def request_fields(key: str, script: str) -> dict[str, Any]:
    """Return the fields of the launch request, from the key of the experiment and the script."""
    code = pack_code({"main.py": script.encode()})
    return {"key": f"{key}-trial-1", "argv": [PYTHON, "main.py"], "code": code, "info": INFO, "slots": 1}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
