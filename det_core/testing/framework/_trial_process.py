"""Main module of a process that runs one trial for `Laboratory.train_elsewhere`.

It reads a request as JSON from its standard input.
"""

from __future__ import annotations

import importlib.util
import json
import operator
import sys
from typing import Any

from det_core import core
from det_core.plugins import import_target
from det_core.testing.framework._incidents import schedule_incidents
from det_core.trial import Trial


def _trial_class(file: str, module: str, trial_class: str) -> type[Trial]:
    """Import a class from a file that may be outside of ``sys.path``, as test files often are."""
    spec = importlib.util.spec_from_file_location(module, file)
    assert spec and spec.loader
    sys.modules[module] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[module])
    found: type[Trial] = operator.attrgetter(trial_class)(sys.modules[module])
    return found


def main(request: dict[str, Any]) -> None:
    """Run the requested trial with the requested incidents."""
    trial_class = _trial_class(*(request[key] for key in ("file", "module", "trial_class")))
    run_trial = import_target(request["target"])
    with schedule_incidents([tuple(incident) for incident in request["incidents"]]), core.init() as context:
        run_trial(trial_class, context)


if __name__ == "__main__":
    main(json.load(sys.stdin))
