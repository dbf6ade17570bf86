"""Main module of a process that runs one trial, or one of its slots, for `TrialHarness`.

It reads a request as JSON from its standard input.
"""

from __future__ import annotations

import importlib.util
import json
import operator
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from det_core import core
from det_core.interfaces.framework import Metrics, TrialAdapter
from det_core.plugins import import_target
from det_core.trial import Trial
from det_testing.framework._incidents import schedule_incidents
from det_testing.framework._recording_adapter import RecordingAdapter, record_adapters


def _trial_class(file: str, module: str, trial_class: str) -> type[Trial]:
    """Import a class from a file that may be outside of ``sys.path``, as test files often are."""
    spec = importlib.util.spec_from_file_location(module, file)
    assert spec and spec.loader
    sys.modules[module] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[module])
    found: type[Trial] = operator.attrgetter(trial_class)(sys.modules[module])
    return found


class RecordsSlot(RecordingAdapter):
    """Witness that records the validations of its slot, and writes a checkpoint of the slot after each of them."""

    def __init__(self, directory: Path, adapter: TrialAdapter) -> None:
        super().__init__(adapter)
        self._directory = directory
        self.validations: list[Metrics | None] = []

    def validate(self, stop: Callable[[], bool]) -> Metrics | None:
        self.validations.append(super().validate(stop))
        self.adapter.snapshot()(self._directory)
        return self.validations[-1]


def main(request: dict[str, Any]) -> None:
    """Run the requested trial, or one of its slots, whose results are written to a file and a directory."""
    trial_class = _trial_class(*(request[key] for key in ("file", "module", "trial_class")))
    run_trial = import_target(request["target"])
    slot = request.get("slot")
    distributed = core.DistributedContext(**slot["distributed"]) if slot else None
    with (
        schedule_incidents([tuple(incident) for incident in request["incidents"]]),
        record_adapters(partial(RecordsSlot, Path(slot["checkpoint"])) if slot else RecordingAdapter) as recorders,
        core.init(distributed=distributed) as context,
    ):
        run_trial(trial_class, context)
    if slot:
        records = [values["records"] for values in recorders[-1].values if "records" in values]
        Path(slot["metrics"]).write_text(json.dumps([records, recorders[-1].validations]), encoding="utf-8")


if __name__ == "__main__":
    main(json.load(sys.stdin))
