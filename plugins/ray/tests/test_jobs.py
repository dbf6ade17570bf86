"""The runner is a Ray job."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
import ray
from cluster import ray_cluster, wait_for

from det_core.cli import main

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


class Dashboard(BaseHTTPRequestHandler):
    """Dashboard that accepts jobs and keeps the files that they get."""

    packages: ClassVar[list[bytes]] = []

    def do_GET(self) -> None:
        if self.path == "/api/version":
            self.answer({"version": "4", "ray_version": ray.__version__, "ray_commit": "", "session_name": ""})
        else:
            self.send_error(404)  # the package is not there yet

    def do_PUT(self) -> None:
        self.packages.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer({})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer({"job_id": "raysubmit_1", "submission_id": "raysubmit_1"})

    def answer(self, value: object) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def dashboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the address of a dashboard that is no cluster."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)  # which counts before --address
    Dashboard.packages.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Dashboard) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_job_gets_the_code_of_its_experiment_only(dashboard: str, config: Path) -> None:
    """det knows ``.detignore``, and Ray ``.gitignore``."""
    for name in ("data", "generated", ".gitignore", ".detignore"):
        (config.parent / name).touch()
    (config.parent / ".gitignore").write_text("generated\n")
    (config.parent / ".detignore").write_text("data\n")
    assert main(["ray", "submit", str(config), f"--address={dashboard}"]) == 0
    with zipfile.ZipFile(io.BytesIO(Dashboard.packages[0])) as package:
        assert set(package.namelist()) == {"main.py", "const.yaml", "generated", ".gitignore", ".detignore"}


def test_a_config_that_the_job_does_not_get_is_refused(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (config.parent / ".detignore").write_text("*.yaml\n")
    assert main(["ray", "submit", str(config)]) == 1
    assert "const.yaml is left out by .detignore" in capsys.readouterr().err


def test_a_dashboard_that_is_not_there_is_named(network: None, config: Path) -> None:
    error = run("det_core.cli", "ray", "submit", str(config), "--address=http://127.0.0.1:1", code=1)
    assert "cannot submit a job to Ray at http://127.0.0.1:1" in error and "--address" in error, error


def test_a_config_elsewhere_is_refused(config: Path, tmp_path: Path) -> None:
    error = run("det_core.cli", "ray", "submit", str(config), str(tmp_path / "other"), code=1)
    assert "is not below" in error, error
