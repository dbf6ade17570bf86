"""Experiments that tests submit to a server."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.launch.context_archive import pack_context_dir

from .serving import wait_for

TRAIN = """
import det_core as det
with det.core.init() as context:
    context.train.report_validation_metrics(steps_completed=1, metrics={"loss": 0.5})
    for operation in context.searcher.operations():
        operation.report_completed(0.5)
"""
SECRET = "hunter2hunter2"


def submission(directory: Path, code: str = TRAIN, **changes: Any) -> dict[str, Any]:
    """Return the body that submits an experiment with one file of code."""
    directory.mkdir(exist_ok=True)
    (directory / "train.py").write_text(code)
    config = {
        "name": "submitted",
        "entrypoint": "python3 train.py",
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
        "max_restarts": 0,
        **changes,
    }
    code_archive = base64.b64encode(pack_context_dir(directory)).decode()
    return {"config": config, "original_config": json.dumps(config), "code": code_archive}


def ended(store: TrackingStore, experiment_id: int) -> State:
    """Return the state in which an experiment ends."""
    wait_for(lambda: store.experiment(experiment_id).state.final and not store.lease_holder(experiment_id))
    return store.experiment(experiment_id).state
