"""MLflow server for tests, which runs in an environment of its own."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from det_testing.requirements import skip_or_fail_in_ci

from tests.comm.job import free_port

PROGRAM = Path(__file__).parents[3] / ".cache/mlflow/bin/mlflow"
_LIMIT = 90
_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # else it starts five more processes
}


class MLflowServer:
    """Server with SQLite and its own artifacts, which can be stopped and started again with the same data.

    Args:
        directory: directory of its data.
        password: password of its user ``admin``, or "" if it has no users.
    """

    def __init__(self, directory: Path, password: str = "") -> None:
        self._directory = directory
        self._headers = {"Content-Type": "application/json"}
        self._extra: dict[str, str] = {}
        if password:
            self._headers["Authorization"] = "Basic " + base64.b64encode(f"admin:{password}".encode()).decode()
            self._extra = {"MLFLOW_AUTH_ADMIN_PASSWORD": password, "MLFLOW_FLASK_SERVER_SECRET_KEY": "for tests"}
        self._port = free_port()
        self.address = f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        command = [str(PROGRAM), "server", "--host", "127.0.0.1", "--port", str(self._port), "--workers", "1"]
        store = ["--backend-store-uri", f"sqlite:///{self._directory}/mlflow.db"]
        artifacts = ["--artifacts-destination", str(self._directory / "artifacts")]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW", "PYTHON", "DET"))}
        with (self._directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *store, *artifacts, *(["--app-name", "basic-auth"] if self._extra else [])],
                cwd=self._directory,
                env=kept | _SETTINGS | self._extra,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + _LIMIT
        while True:
            try:
                urllib.request.urlopen(f"{self.address}/health", timeout=5).close()
                return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.kill()
                    log_lines = (self._directory / "server.log").read_text().splitlines()[-20:]
                    raise RuntimeError("\n".join(["the server did not start:", *log_lines])) from None
                time.sleep(0.1)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self._process.wait(_LIMIT)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server and its workers."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        self.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(signal.SIGCONT)

    def call(self, path: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            f"{self.address}/api/2.0/mlflow/{path}", json.dumps(body).encode(), self._headers
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)

    def get(self, path: str, /, **query: str) -> Any:
        return json.loads(self.read(path, **query))

    def read(self, path: str, /, **query: str) -> bytes:
        request = urllib.request.Request(f"{self.address}/{path}?{urlencode(query)}", headers=self._headers)
        with urllib.request.urlopen(request, timeout=60) as response:
            content: bytes = response.read()
            return content

    def runs(self, experiment: str) -> list[Run]:
        """Return the active runs of an experiment, oldest first."""
        try:
            found = self.get("api/2.0/mlflow/experiments/get-by-name", experiment_name=experiment)["experiment"]
        except urllib.error.HTTPError:
            return []
        body = {"experiment_ids": [found["experiment_id"]], "max_results": 1000}
        runs = self.call("runs/search", body).get("runs", [])
        return [Run(self, run) for run in sorted(runs, key=lambda run: run["info"]["start_time"])]


class Run:
    """Run as it was when it was read."""

    def __init__(self, server: MLflowServer, data: dict[str, Any]) -> None:
        self._server = server
        self.info = data["info"]
        self.id: str = self.info["run_id"]
        self.status: str = self.info["status"]
        self.name: str = self.info["run_name"]
        self.tags: dict[str, str] = _entries(data, "tags")
        self.parameters: dict[str, str] = _entries(data, "params")
        self.metrics: dict[str, float] = _entries(data, "metrics")

    @property
    def checkpoints(self) -> dict[str, Any]:
        """Contents of the tags of checkpoints by id."""
        marks = {name: value for name, value in self.tags.items() if name.startswith("det.checkpoint.")}
        return {name.removeprefix("det.checkpoint."): json.loads(value) for name, value in marks.items()}

    def history(self, metric: str) -> list[tuple[int, Any]]:
        """Return the steps and values of a metric, in the order of time."""
        got = self._server.get("api/2.0/mlflow/metrics/get-history", run_id=self.id, metric_key=metric)
        points = sorted(got.get("metrics", []), key=lambda point: (point["timestamp"], point.get("step", 0)))
        return [(point.get("step", 0), point.get("value", 0)) for point in points]

    def files(self, path: str = "") -> list[str]:
        """Return the paths of all artifacts below a path."""
        got = self._server.get("api/2.0/mlflow/artifacts/list", run_id=self.id, path=path)
        nested = [self.files(file["path"]) if file["is_dir"] else [file["path"]] for file in got.get("files", [])]
        return [path for paths in nested for path in paths]

    def read(self, path: str) -> bytes:
        return self._server.read("get-artifact", run_id=self.id, path=path)


def _entries(data: dict[str, Any], kind: str) -> dict[str, Any]:
    return {entry["key"]: entry.get("value", 0) for entry in data["data"].get(kind, [])}


@contextmanager
def running_mlflow(directory: Path, password: str = "", *, start: bool = True) -> Iterator[MLflowServer]:
    """Run a server during the block, which starts it itself if ``start`` is unset.

    If it is not installed, the test is skipped, and fails in CI.
    """
    if not PROGRAM.exists():
        skip_or_fail_in_ci("no MLflow server; install it: make .cache/mlflow/.installed")
    server = MLflowServer(directory, password)
    if start:
        server.start()
    try:
        yield server
    finally:
        server.kill()
