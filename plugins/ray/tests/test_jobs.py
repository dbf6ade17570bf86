"""The runner is a Ray job."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from cluster import ray_cluster, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(280)]

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


def run(*command: str, code: int = 0) -> str:
    ran = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, timeout=120)
    assert ran.returncode == code, f"{command}: {ran.stdout}{ran.stderr}"
    return ran.stderr if code else ran.stdout


def submit_job(config: Path, address: str) -> str:
    """Submit a job, and return the output, or "" if the agent of the head node has not started yet."""
    command = [sys.executable, "-m", "det_core.cli", "ray", "submit", str(config), address]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0 or "No available agent" in ran.stderr, ran.stderr
    return ran.stdout


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Return the config of an experiment in a directory with its code."""
    directory = tmp_path / "code"
    directory.mkdir()
    (directory / "main.py").write_text(SCRIPT)
    path = directory / "const.yaml"
    path.write_text(CONFIG)
    return path


@pytest.mark.slow
def test_an_experiment_is_submitted_as_a_job(network: None, config: Path) -> None:
    with ray_cluster({"CPU": 2}, dashboard=True) as cluster:
        address = f"--address={cluster.dashboard}"
        submitted = wait_for(lambda: submit_job(config, address), "agent of the head node", seconds=200)
        (job,) = re.findall(r"^Submitted Ray job (raysubmit_\w+)\. ", submitted)
        logs = run("ray.scripts.scripts", "job", "logs", address, "--follow", job)
        assert "Experiment 1 completed: 1 trial" in logs and f"Job '{job}' succeeded" in logs, logs


def test_a_dashboard_that_is_not_there_is_named(network: None, config: Path) -> None:
    error = run("det_core.cli", "ray", "submit", str(config), "--address=http://127.0.0.1:1", code=1)
    assert "cannot submit a job to Ray at http://127.0.0.1:1" in error and "--address" in error, error


def test_a_config_elsewhere_is_refused(config: Path, tmp_path: Path) -> None:
    error = run("det_core.cli", "ray", "submit", str(config), str(tmp_path / "other"), code=1)
    assert "is not below" in error, error
