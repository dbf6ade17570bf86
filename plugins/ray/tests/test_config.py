"""Options, and texts about waits and ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from det_ray._config import RayConfig
from det_ray._launcher import RayLauncher
from det_ray.driver import JOB_VARIABLE, explain_death, explain_wait, keep_directory_here
from pydantic import ValidationError
from ray.exceptions import ActorDiedError, ActorUnavailableError

from det_core.errors import LaunchError
from det_core.interfaces.launcher import Cause, LaunchRequest

NODES: list[dict[str, Any]] = [
    {"Alive": True, "Resources": {"CPU": 8.0, "GPU": 2.0}},
    {"Alive": True, "Resources": {"CPU": 8.0}},
    {"Alive": False, "Resources": {"CPU": 8.0, "GPU": 8.0}},
]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"address": "ray://head:10001"}, "det ray submit"),
        ({"address": "head"}, "host and port"),
        ({"resources": {"GPU": 2}}, "slots_per_node"),
        ({"resources": {"CPU": 0}}, "greater than 0"),
        ({"resources": {"CPU": 0.00001}}, "CPU is 1e-05, but Ray counts in steps of 0.0001"),
        ({"resources": {"CPU": float("inf")}}, "finite"),
        ({"resources": {"": 1}}, "expected a name"),
        ({"resources": {}}, "at least 1"),
        ({"partition": "main"}, "partition"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        RayConfig(**options)


@pytest.mark.parametrize(("resources", "device"), [({"CPU": 2}, "cpu"), ({"GPU": 1, "CPU": 4}, "cuda")])
def test_the_device_is_that_of_the_resources(resources: dict[str, float], device: str) -> None:
    assert RayLauncher(RayConfig(resources=resources)).device() == device


def test_nodes_share_the_slots_equally() -> None:
    request = LaunchRequest(
        key="k", argv=["true"], code=b"", info={}, slots=5, log=lambda *_: None, call=lambda *_: b""
    )
    with pytest.raises(LaunchError, match="5 slots, which 3 nodes with up to 2 slots cannot share"):
        RayLauncher(RayConfig(slots_per_node=2, resources={"CPU": 1})).start(request)


@pytest.mark.parametrize(
    ("bundle", "count", "text"),
    [
        ({"CPU": 4}, 1, "it needs 4 CPU on one node; free in the cluster: 3 CPU"),
        (
            {"GPU": 1, "CPU": 1},
            2,
            "it needs 1 GPU and 1 CPU on each of 2 nodes, but only 1 of the 2 nodes of the cluster",
        ),
        (
            {"GPU": 8},
            1,
            "it needs 8 GPU on one node, but no node has that; it waits until an autoscaler or you add nodes",
        ),
    ],
)
def test_waits_are_explained(bundle: dict[str, float], count: int, text: str) -> None:
    assert explain_wait(NODES, {"CPU": 3.0}, bundle, count).startswith(text)


def test_a_user_module_with_a_name_of_python_is_not_imported(tmp_path: Path) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit('imported')\n")
    command = [sys.executable, "-m", "det_ray.driver", "describe", "127.0.0.1:1"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "no Ray cluster at 127.0.0.1:1" in ran.stderr


def test_nodes_do_not_get_the_directory_of_a_submitted_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """It contains the config with its secrets."""
    job = {"runtime_env": {"working_dir": "gcs://code.zip", "pip": ["torch"]}, "metadata": {"job": "1"}}
    monkeypatch.setenv(JOB_VARIABLE, json.dumps(job))
    keep_directory_here()
    assert json.loads(os.environ[JOB_VARIABLE]) == {"runtime_env": {"pip": ["torch"]}, "metadata": {"job": "1"}}


def test_unknown_deaths_of_actors_are_lost_nodes() -> None:
    cause, message = explain_death(ActorUnavailableError("the network is down", None))
    assert cause is Cause.NODE_LOST and "the network is down" in message
    assert explain_death(ActorDiedError())[0] is Cause.NODE_LOST
