"""Every test of the suite for launchers catches a launcher with a defect."""

from __future__ import annotations

import re
import sys
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest

from det_core.launch._reaped_command import ReapedCommand
from det_core.testing.launcher import LauncherCompliance
from tests.testing.broken_launchers import CAUGHT_BY
from tests.testing.plugin_sites import plugin_environment

ROOT = Path(__file__).parents[2]
BROKEN = "tests/testing/broken_launchers.py"


PROCESSES = 4
"""Number of pytest processes, because launchers with a defect make tests wait."""
SECONDS = 250


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, str]]:
    """Run the tests that should fail, and return those that did as (launcher, test)."""
    environment = plugin_environment(tmp_path_factory.mktemp("site"), "tests.testing.broken_launchers")
    chosen = [
        f"{BROKEN}::Test{launcher.__name__}::test_{test}" for launcher, tests in CAUGHT_BY.items() for test in tests
    ]
    pytests = [
        Pytest(chosen[first::PROCESSES], tmp_path_factory.mktemp("output") / "output", environment)
        for first in range(PROCESSES)
    ]
    return {failure for one in pytests for failure in one.failures()}


class Pytest:
    """Pytest process under a guard, because launchers with a defect leave processes behind."""

    def __init__(self, tests: list[str], output: Path, environment: dict[str, str]) -> None:
        self.output = output
        command = [sys.executable, "-m", "pytest", "-q", "-rf", "--tb=short", "-p", "no:cacheprovider"]
        with output.open("wb") as file:
            self.command = ReapedCommand([*command, *tests], environment, cwd=ROOT, output=file.fileno())

    def failures(self) -> set[tuple[str, str]]:
        with closing(self.command):
            code = self.command.wait(SECONDS)
        told = self.output.read_text()
        print(told)  # shown if a test fails
        assert code == 1, told
        return set(re.findall(r"^FAILED \S+::Test(\w+)::test_(\w+)", told, re.MULTILINE))


@pytest.mark.integration
@pytest.mark.parametrize(
    ("launcher", "test"), [(launcher.__name__, test) for launcher, tests in CAUGHT_BY.items() for test in tests]
)
def test_a_defect_is_caught(failed: set[tuple[str, str]], launcher: str, test: str) -> None:
    if launcher == "RelaysNoCalls" and find_spec("det_core.tracking.remote") is None:
        pytest.skip("there is no protocol for calls yet")
    assert (launcher, test) in failed


def test_every_test_of_the_suite_catches_a_defect() -> None:
    tests = {name for name in dir(LauncherCompliance) if name.startswith("test_")}
    assert {f"test_{test}" for caught in CAUGHT_BY.values() for test in caught} == tests
