"""Every test of the framework suite catches a framework with a defect."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from det_core.testing import is_soak
from det_core.testing.framework import FrameworkCompliance
from det_core.trial import Trial
from tests.testing.broken_frameworks import CAUGHT_BY

ROOT = Path(__file__).parents[2]
BROKEN = "tests/testing/broken_frameworks.py"

CAUGHT = [(framework.__name__, test) for framework, tests in CAUGHT_BY.items() for test in tests]
CHOSEN = CAUGHT if is_soak() else CAUGHT[::3]


@pytest.fixture(scope="module")
def failed() -> set[tuple[str, str]]:
    """Run the tests that should fail, and return those that did as (framework, test)."""
    chosen = [f"{BROKEN}::Test{framework}::test_{test}" for framework, test in CHOSEN]
    command = [sys.executable, "-m", "pytest", "-q", "-rf", "--tb=no", "-p", "no:cacheprovider", *chosen]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    return set(re.findall(r"^FAILED \S+::Test(\w+)::test_(.+?)(?: - .*)?$", ran.stdout, re.MULTILINE))


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.parametrize(("framework", "test"), CHOSEN)
def test_a_defect_is_caught(failed: set[tuple[str, str]], framework: str, test: str) -> None:
    assert (framework, test) in failed


def test_every_test_of_the_suite_catches_a_defect() -> None:
    tests = {name for name in dir(FrameworkCompliance) if name.startswith("test_")}
    assert {f"test_{test.partition('[')[0]}" for _, test in CAUGHT} == tests


def test_a_missing_or_local_trial_class_and_missing_weights_are_errors() -> None:
    class Local(Trial):
        pass

    mine = type("TestMine", (FrameworkCompliance,), {})
    with pytest.raises(AssertionError, match="TestMine must set trial_class"):
        mine._trial_class()
    with pytest.raises(NotImplementedError, match=r"TestMine must override weights\(path\)"):
        mine().weights(ROOT)
    with pytest.raises(AssertionError, match="Local is defined inside a function.*move it to the top"):
        type("TestMine", (FrameworkCompliance,), {"trial_class": Local})._trial_class()
