"""The plugin in docs/launchers.md works. It is registered, runs, and passes the suite."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import test_prefix
from det_testing.launcher import LauncherCompliance
from det_testing.launcher.launcher_suite import INFO, pack_code
from det_testing.launcher.watched_launch import WatchedLaunch, refuse_calls
from det_testing.requirements import skip_or_fail_in_ci

from det_core.config import parse_config
from det_core.interfaces.launcher import Cause, LaunchRequest, Phase
from plugins.testing.tests.document_parts import declared_attributes, first_column, require_example, snippets
from plugins.testing.tests.plugin_sites import run_module

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "launcher_plugin"
SSH_EXAMPLE = ROOT / "examples" / "launcher_ssh"
DOCUMENT = ROOT / "docs" / "launchers.md"
KUBERNETES = next(code for code in snippets(DOCUMENT, "python") if "kubectl" in code)


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.usefixtures("registered")
class TestExample(test_prefix.TestPrefix):
    code_size = 2 << 20


@pytest.mark.integration
def test_the_launcher_is_listed(det: Callable[..., str]) -> None:
    assert "launcher prefix" in det("plugins", "list")
    assert det("plugins", "check", "det-prefix").endswith("exit code 0")


def test_the_block_of_the_document_is_valid(det: Callable[..., str], tmp_path: Path) -> None:
    (block,) = snippets(DOCUMENT, "yaml")
    config = tmp_path / "const.yaml"
    config.write_text(f"entrypoint: m:T\nsearcher: {{name: single, metric: loss, max_length: 1}}\n{block}")
    assert det("config", "check", config).endswith("exit code 0")


@pytest.mark.integration
@pytest.mark.usefixtures("registered")
def test_agents_are_found_without_an_activated_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.defpath)
    (tmp_path / "const.yaml").write_text(
        "entrypoint: python3 -c 'import det_core'\n"
        "launcher: {type: prefix, command: [nice]}\n"
        "searcher: {name: single, metric: loss}\n"
    )
    told = run_module(tmp_path, "det_core.cli", "run", "const.yaml")
    assert told.endswith("exit code 0"), told


@pytest.mark.integration
def test_launches_wait_for_slots_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_SLOTS_DIR", str(tmp_path / "slots"))
    monkeypatch.setenv("DET_HOME", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    launcher = runpy.run_path(str(EXAMPLE / "queued.py"))["QueueLauncher"](None)

    def start(key: str, command: str) -> WatchedLaunch:
        argv = ["/bin/sh", "-c", command]
        return WatchedLaunch(launcher, 60, key=key, argv=argv, code=pack_code({}), info=INFO, slots=2)

    first = start("first", "echo ready; sleep 1000")
    try:
        first.wait_until(first.output, "output")
        withdrawn, second = start("withdrawn", "exit 3"), start("second", "true")
        second.wait_until(lambda: second.statuses, "state")
        (queued,) = second.statuses
        assert queued.phase is Phase.QUEUED and "is held by" in queued.message
        withdrawn.allocation.preempt()
        assert withdrawn.ended().cause is Cause.NOT_STARTED
        first.allocation.kill()
        second.require_code()
        assert first.ended().code == -9
    finally:
        first.release()


@pytest.mark.integration
def test_the_smallest_launcher_starts_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.defpath)  # python3 is found nevertheless
    launcher = runpy.run_path(str(EXAMPLE / "smallest.py"))["NiceLauncher"](None)
    command = ["/bin/sh", "-c", 'test "$(nice)" -ge 10']
    launch = WatchedLaunch(launcher, 60, key="smallest", argv=command, code=pack_code({}), info=INFO, slots=1)
    launch.require_code()


_ENGINE = """#!/bin/sh
cd "$(dirname "$0")"
echo "$@" >>calls
case $1 in
    state) [ -e asked ] && echo running || echo pending; touch asked ;;
    attach) shift 2; exec "$@" ;;
esac
"""
"""Engine whose only node is there when the state is read for the second time."""


@pytest.mark.integration
def test_a_launcher_for_an_engine_waits_and_removes_its_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "engine").write_text(_ENGINE)
    (tmp_path / "engine").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    shown = runpy.run_path(str(EXAMPLE / "engine.py"))
    shown["OneNode"].poll_seconds = 0.1
    launcher = shown["EngineLauncher"]()
    launcher.open("c-exp-1")
    key = "c-exp-1-trial-1"
    launch = WatchedLaunch(launcher, 60, key=key, argv=["true"], code=pack_code({}), info=INFO, slots=1)
    launch.require_code()
    waiting = launch.statuses[0]
    assert (waiting.phase, waiting.handle, waiting.message) == (Phase.QUEUED, f"job {key}", "it is unknown")
    calls = [line.partition(" python3")[0] for line in (tmp_path / "calls").read_text().splitlines()]
    assert calls == [
        "remove --name-prefix c-exp-1-", f"submit --name {key}", f"state {key}", f"state {key}", f"attach {key}",
        f"remove --name {key}",
    ]  # fmt: skip


def test_the_claimed_keys_of_the_document_have_no_effect_of_their_own() -> None:
    shown = runpy.run_path(str(EXAMPLE / "claimed.py"))
    (path,) = shown["ClaimedKeys"].model_fields
    inner = {path: {"image": "torch"}}
    searcher = {"name": "single", "metric": "loss", "max_length": 1}
    assert any("ignored: environment.image" in one for one in parse_config({"searcher": searcher, **inner}).notices)
    assert shown["ClaimedKeys"].model_validate(inner).environment.image == "torch"


@pytest.mark.parametrize("language", ["python", "toml"])
def test_the_document_shows_the_example(language: str) -> None:
    of_ssh = [code for code in snippets(DOCUMENT, language) if code in (SSH_EXAMPLE / "det_ssh.py").read_text()]
    assert len(of_ssh) == (language == "python")
    require_example(DOCUMENT, language, EXAMPLE, others=[KUBERNETES, *of_ssh])


@pytest.mark.integration
def test_the_first_process_of_a_pod_passes_signals_on_and_ends_last() -> None:
    """The rest of the code for Kubernetes needs a cluster."""
    if os.getuid() != 0:
        skip_or_fail_in_ci("a process id namespace needs root")
    names: dict[str, Any] = {}
    exec(compile(KUBERNETES, str(DOCUMENT), "exec", dont_inherit=True), names)
    request = LaunchRequest(key="c-trial-1", argv=[], code=b"", info={}, slots=1, log=print, call=refuse_calls)
    (container,) = names["describe_pod"](request, 0, 1)["spec"]["containers"]
    json.dumps(container)
    *shell, script = container["command"]
    agent = "(trap 'sleep 0.5; echo saved; exit' TERM; echo ready; while :; do sleep 0.1; done) &"
    command = ["unshare", "--pid", "--fork", "--mount-proc", *shell, agent + script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as namespace:
        assert namespace.stdout and namespace.stdout.readline() == "ready\n"
        (first,) = psutil.Process(namespace.pid).children()
        first.terminate()
        assert namespace.communicate(timeout=60)[0] == "saved\n"
        assert namespace.returncode == 0


def test_every_attribute_is_in_the_table() -> None:
    assert declared_attributes(LauncherCompliance) | {"is_running"} <= first_column(DOCUMENT)
