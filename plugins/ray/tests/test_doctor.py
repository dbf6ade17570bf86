"""``det doctor`` tries a launch on the nodes of a cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.usefixtures("cluster")]


def test_nodes_of_a_trial_are_tried(tmp_path: Path) -> None:
    config = {
        "entrypoint": "true",
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
        "resources": {"slots_per_trial": 2},
        "launcher": {"type": "ray", "slots_per_node": 1},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "det_core.cli", "doctor", "--json", tmp_path / "config.json"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=200)
    (check,) = [one for one in json.loads(ran.stdout)["checks"] if one["check"] == "launcher"]
    assert check["ok"], check
    assert [part.partition(":")[0] for part in check["detail"].split("; ")] == ["127.0.0.1"] * 2
