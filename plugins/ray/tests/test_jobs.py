"""The runner is a Ray job."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cluster import ray_cluster

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(280)]

CONFIG = """
entrypoint: python3 main.py
searcher: {name: single, metric: loss, max_length: {batches: 1}}
launcher: {type: ray}
"""
SCRIPT = """
import det_core as det

with det.core.init() as core_context:
    core_context.train.report_validation_metrics(steps_completed=1, metrics={"loss": 0.25})
"""


def run(*command: str) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, f"{command}: {ran.stdout}{ran.stderr}"
    return ran.stdout


def test_an_experiment_is_submitted_as_a_job(network: None, tmp_path: Path) -> None:
    (tmp_path / "const.yaml").write_text(CONFIG)
    (tmp_path / "main.py").write_text(SCRIPT)
    with ray_cluster({"CPU": 2}, dashboard=True) as cluster:
        address = f"--address={cluster.dashboard}"
        submitted = run(sys.executable, "-m", "det_core.cli", "ray", "submit", str(tmp_path / "const.yaml"), address)
        (job,) = [word for word in submitted.replace(".", " ").split() if word.startswith("raysubmit_")][:1]
        logs = run(sys.executable, "-m", "ray.scripts.scripts", "job", "logs", address, "--follow", job)
        assert (
            "Created experiment 1" in logs and "Experiment 1 completed" in logs and f"Job '{job}' succeeded" in logs
        ), logs
