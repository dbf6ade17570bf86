"""Every test of the framework suite catches a framework with a defect."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_core.testing import is_soak
from det_core.testing.framework import FrameworkCompliance
from det_core.trial import Trial
from tests.testing.broken_frameworks import CAUGHT_BY
from tests.testing.failing_tests import find_failures, list_defects

CAUGHT = list_defects(CAUGHT_BY)
CHOSEN = CAUGHT if is_soak() else CAUGHT[::3]


@pytest.fixture(scope="module")
def failed() -> set[tuple[str, str]]:
    """Run the tests that should fail, and return those that did as (framework, test)."""
    return find_failures("broken_frameworks", CHOSEN)


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
        mine().weights(Path())
    with pytest.raises(AssertionError, match="Local is defined inside a function.*move it to the top"):
        type("TestMine", (FrameworkCompliance,), {"trial_class": Local})._trial_class()
