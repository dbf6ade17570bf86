"""The plugin passes det's compliance suite.

To run it, type ``pip install 'det-core[testing]' .``, then ``pytest test_jsonl.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from det_jsonl import JsonLines, JsonLinesConfig
from det_testing.observer import ObserverCompliance

from det_core.events import TrialFinished
from det_core.interfaces.observer import ObserverContext
from det_core.interfaces.records import State


class TestJsonLines(ObserverCompliance):
    name = "jsonl"
    arriving = ("metrics_reported", "logs_recorded", "checkpoint_saved", "trial_finished", "worker_finished")

    @pytest.fixture
    def options(self, tmp_path: Path) -> Mapping[str, Any]:
        return {"directory": str(tmp_path / "events"), "logs": True}

    @pytest.fixture
    def arrived(self, tmp_path: Path) -> Callable[[], str]:
        return lambda: "".join(path.read_text() for path in (tmp_path / "events").glob("*.jsonl"))

    @pytest.fixture
    def unreachable(self, tmp_path: Path) -> Mapping[str, Any]:
        (tmp_path / "file").touch()
        return {"directory": str(tmp_path / "file" / "events")}


def test_flush_writes_a_line_per_event(tmp_path: Path) -> None:
    context = ObserverContext(
        place="runner", cluster_id="any", experiment_id=1, config={}, fetch_files=lambda *arguments: None
    )
    observer = JsonLines(JsonLinesConfig(directory=tmp_path))
    observer.open(context)
    trial = {"experiment_id": 1, "config": {}, "trial_id": 2, "run_id": 1, "hparams": {"lr": 0.1}}
    observer.notify(TrialFinished(**trial, state=State.COMPLETED, steps_completed=100, best=0.25))
    observer.flush()
    observer.close()
    assert '"best": 0.25' in (tmp_path / "experiment-1.jsonl").read_text()
