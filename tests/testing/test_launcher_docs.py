"""The plugin in docs/launchers.md works. It is installed, runs, and passes the suite."""

from __future__ import annotations

import os
import re
import runpy
import sys
from pathlib import Path

import pytest

from det_core.interfaces.launcher import Exit
from det_core.testing.launcher import LauncherCompliance
from det_core.testing.launcher._launcher_suite import INFO, pack_code
from det_core.testing.launcher._watched_launch import WatchedLaunch
from tests.testing.documents import first_column, snippets
from tests.testing.installed_examples import Run, install_example

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "launcher_plugin"
DOCUMENT = ROOT / "docs" / "launchers.md"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a module next to the example's test, with the example installed by pip."""
    return install_example(tmp_path_factory.mktemp("docs"), EXAMPLE, "test_prefix.py")


@pytest.mark.integration
@pytest.mark.slow
def test_the_launcher_passes_the_suite(run: Run) -> None:
    told = run("pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "test_prefix.py")
    assert re.search(r"^\d+ passed, \d+ skipped in ", told, re.MULTILINE), told


@pytest.mark.integration
def test_the_launcher_is_listed(run: Run) -> None:
    assert "launcher prefix" in run("det_core.cli", "plugins", "list")
    assert run("det_core.cli", "plugins", "check").endswith("exit code 0")


@pytest.mark.integration
def test_the_smallest_launcher_starts_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    launcher = runpy.run_path(str(EXAMPLE / "smallest.py"))["NiceLauncher"](None)
    command = ["/bin/sh", "-c", 'test "$(nice)" -ge 10']
    launch = WatchedLaunch(launcher, 60, key="smallest", argv=command, code=pack_code({}), info=INFO, slots=1)
    assert launch.ended() == Exit(code=0), launch.lines


@pytest.mark.parametrize("language", ["python", "toml"])
def test_the_document_shows_the_example(language: str) -> None:
    example = "\n".join(path.read_text() for path in EXAMPLE.iterdir() if path.is_file())
    shown = snippets(DOCUMENT, language)
    assert shown and [code for code in shown if code not in example] == []


def test_every_attribute_is_in_the_table() -> None:
    suite = [base for base in LauncherCompliance.__mro__ if base.__module__.startswith("det_core.testing")]
    declared = {name for base in suite for name in vars(base).get("__annotations__", {})}
    assert declared | {"is_running"} <= first_column(DOCUMENT)
