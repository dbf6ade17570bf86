"""The plugin passes det's compliance suite.

To run it, type ``pip install 'det-core[testing]' .``, then ``pytest test_jsonl.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from det_core.testing.observer import ObserverCompliance


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
