"""Compliance suite for observers, run with the server."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from det_testing.observer import ObserverCompliance

from .server import MLflowServer

pytestmark = pytest.mark.integration


class TestMLflow(ObserverCompliance):
    name = "mlflow"
    arriving = ("metrics_reported", "checkpoint_saved", "trial_finished")
    secrets = ("token",)

    @pytest.fixture
    def options(self, server: MLflowServer) -> Mapping[str, Any]:
        name = f"suite-{uuid.uuid4().hex}"
        return {"tracking_uri": server.address, "experiment_name": name, "checkpoints": "copy", "token": "a-token"}

    @pytest.fixture
    def arrived(self, server: MLflowServer, options: Mapping[str, Any]) -> Callable[[], str]:
        def read() -> str:
            runs = server.runs(options["experiment_name"])
            return str([(run.tags, run.parameters, [run.history(name) for name in run.metrics]) for run in runs])

        return read

    @pytest.fixture
    def unreachable(self, options: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            yield {**options, "tracking_uri": f"http://127.0.0.1:{silent.getsockname()[1]}", "timeout": 1}
