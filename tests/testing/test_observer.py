"""Every test of the suite for observers catches an observer with a defect."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from det_core.testing.observer import ObserverCompliance
from tests.testing.broken_observers import CAUGHT_BY
from tests.testing.plugin_sites import plugin_environment

ROOT = Path(__file__).parents[2]
BROKEN = "tests/testing/broken_observers.py"


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, str]]:
    """Run the tests that should fail, and return those that did as (observer, test)."""
    environment = plugin_environment(tmp_path_factory.mktemp("site"), "tests.testing.broken_observers")
    chosen = [
        f"{BROKEN}::Test{observer.__name__}::test_{test}" for observer, tests in CAUGHT_BY.items() for test in tests
    ]
    command = [sys.executable, "-m", "pytest", "-q", "-rf", "--tb=no", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        [*command, *chosen, f"{BROKEN}::TestSound"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    return set(re.findall(r"^FAILED \S+::Test(\w+)::test_(\w+)", ran.stdout, re.MULTILINE))


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize(
    ("observer", "test"), [(observer.__name__, test) for observer, tests in CAUGHT_BY.items() for test in tests]
)
def test_a_defect_is_caught(failed: set[tuple[str, str]], observer: str, test: str) -> None:
    assert (observer, test) in failed


@pytest.mark.integration
@pytest.mark.slow
def test_an_observer_without_a_defect_passes(failed: set[tuple[str, str]]) -> None:
    assert [test for observer, test in failed if observer == "Sound"] == []


def test_every_test_of_the_suite_catches_a_defect() -> None:
    tests = {name for name in dir(ObserverCompliance) if name.startswith("test_")}
    assert {f"test_{test}" for caught in CAUGHT_BY.values() for test in caught} == tests
