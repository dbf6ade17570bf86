"""Main module of a process that runs one trial, or one of its slots, for `TrialHarness`.

It reads a request as JSON from its standard input.
"""

from __future__ import annotations

import importlib.util
import json
import operator
import sys
from pathlib import Path
from typing import Any

from det_core import core
from det_core.plugins import import_target
from det_core.testing.framework._incidents import schedule_incidents
from det_core.testing.framework._recording_adapter import RecordingAdapter, record_adapters
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
    """Run the requested trial, and write what its batch metrics have under ``records`` to a file if requested."""
    trial_class = _trial_class(*(request[key] for key in ("file", "module", "trial_class")))
    run_trial = import_target(request["target"])
    distributed = core.DistributedContext(**request["distributed"]) if "distributed" in request else None
    with (
        schedule_incidents([tuple(incident) for incident in request.get("incidents", ())]),
        record_adapters(RecordingAdapter) as recorders,
        core.init(distributed=distributed) as context,
    ):
        run_trial(trial_class, context)
    if "records" in request:
        records = [values["records"] for values in recorders[-1].values if "records" in values]
        Path(request["records"]).write_text(json.dumps(records), encoding="utf-8")


if __name__ == "__main__":
    main(json.load(sys.stdin))
