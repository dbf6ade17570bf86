"""``det doctor`` tries the partition of a config with two nodes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster

pytestmark = pytest.mark.integration


def check_launcher(tmp_path: Path, **options: Any) -> dict[str, Any]:
    config = {
        "entrypoint": "true",
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
        "launcher": {"type": "slurm", "slots_per_node": 2, **options},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "det_core.cli", "doctor", "--json", tmp_path / "config.json"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=200)
    (check,) = [one for one in json.loads(ran.stdout)["checks"] if one["check"] == "launcher"]
    return dict(check)


@pytest.mark.slow
def test_a_partition_is_checked_with_two_nodes(cluster: Cluster, tmp_path: Path) -> None:
    check = check_launcher(tmp_path)
    assert check["ok"], check
    assert [part.partition(":")[0] for part in check["detail"].split("; ")] == ["n1", "n2"]
    cluster.wait_idle()


@pytest.mark.soak
def test_a_partition_that_does_not_exist_is_named(cluster: Cluster, tmp_path: Path) -> None:
    check = check_launcher(tmp_path, partition="nope")
    assert not check["ok"]
    assert "Invalid partition name specified" in check["detail"]
    cluster.wait_idle()
