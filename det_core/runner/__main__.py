"""Entry point of the detached runner, ``python -m det_core.runner EXPERIMENT_ID [--from-beginning]``.

It reads the URL of the tracking store from stdin, because the URL may contain a password and all users of the host
can read arguments.
"""

from __future__ import annotations

import sys

from det_core.errors import DetError
from det_core.interfaces.records import State
from det_core.runner import ExperimentRunner
from det_core.runner._detached import FROM_BEGINNING
from det_core.tracking import open_store


def main() -> int:
    """Run the experiment and return the exit code."""
    experiment_id, *options = sys.argv[1:]
    url = sys.stdin.readline().rstrip("\n")
    try:
        with open_store(url) as store:
            state = ExperimentRunner(store, int(experiment_id), from_beginning=FROM_BEGINNING in options).run()
    except DetError as error:
        print(error, file=sys.stderr)  # noqa: T201  (to the log file that start_detached quotes)
        return 1
    return 1 if state is State.ERROR else 0


if __name__ == "__main__":
    sys.exit(main())
