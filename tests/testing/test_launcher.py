"""Every test of the suite for launchers catches a launcher with a defect."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from det_core.testing.launcher import LauncherCompliance
from tests.testing.broken_launchers import CAUGHT_BY
from tests.testing.failing_tests import find_failures, list_defects
from tests.testing.plugin_sites import plugin_environment

CAUGHT = list_defects(CAUGHT_BY)
PROCESSES = 4
"""Number of pytest processes, because launchers with a defect make tests wait."""


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, str]]:
    """Run the tests that should fail, and return those that did as (launcher, test)."""
    env = plugin_environment(tmp_path_factory.mktemp("site"), "tests.testing.broken_launchers")
    chosen = [CAUGHT[first::PROCESSES] for first in range(PROCESSES)]
    with ThreadPoolExecutor(PROCESSES) as pool:
        found = pool.map(lambda some: find_failures("broken_launchers", some, env=env), chosen)
        return {failure for failures in found for failure in failures}


@pytest.mark.integration
@pytest.mark.parametrize(("launcher", "test"), CAUGHT)
def test_a_defect_is_caught(failed: set[tuple[str, str]], launcher: str, test: str) -> None:
    assert (launcher, test) in failed


def test_every_test_of_the_suite_catches_a_defect() -> None:
    tests = {name for name in dir(LauncherCompliance) if name.startswith("test_")}
    assert {f"test_{test}" for caught in CAUGHT_BY.values() for test in caught} == tests
