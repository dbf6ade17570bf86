"""Batch scripts and submitted jobs may start the agent of a node under its old name."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys

import pytest

from det_core.package_commands import package_command

OLD_NAME = "det_core.launch.agent_program"


@pytest.mark.integration
def test_the_old_name_starts_the_agent() -> None:
    command = [sys.executable, "-m", OLD_NAME, "--name", "n1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdin and agent.stdout
        hello = json.loads(agent.stdout.readline().removeprefix("det:.") or "{}")
        agent.stdin.close()
    assert (hello["kind"], hello["name"]) == ("hello", "n1")


def test_without_det_cluster_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.setitem(sys.modules, "det_cluster.agent_program", None)
    with pytest.raises(SystemExit, match="det_cluster") as caught:
        runpy.run_module(OLD_NAME, run_name="__main__")
    assert str(caught.value).endswith(f"; type: {package_command('install', 'det-cluster')}")
