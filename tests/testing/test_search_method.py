"""Every test of the suite for search methods catches a search method with a defect."""

from __future__ import annotations

import pytest

from det_core.testing.search_method import SearchMethodCompliance
from tests.testing.broken_search_methods import CAUGHT_BY
from tests.testing.failing_tests import find_failures, list_defects
from tests.testing.plugin_sites import plugin_environment

CAUGHT = list_defects(CAUGHT_BY)


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, str]]:
    """Run the tests that should fail, and return those that did as (method, test)."""
    env = plugin_environment(tmp_path_factory.mktemp("site"), "tests.testing.broken_search_methods")
    return find_failures("broken_search_methods", CAUGHT, "Sound", env=env)


@pytest.mark.integration
@pytest.mark.parametrize(("method", "test"), CAUGHT)
def test_a_defect_is_caught(failed: set[tuple[str, str]], method: str, test: str) -> None:
    assert (method, test) in failed


@pytest.mark.integration
def test_a_method_without_a_defect_passes(failed: set[tuple[str, str]]) -> None:
    assert [test for method, test in failed if method == "Sound"] == []


def test_every_test_of_the_suite_catches_a_defect() -> None:
    tests = {name for name in dir(SearchMethodCompliance) if name.startswith("test_")}
    assert {f"test_{test}" for caught in CAUGHT_BY.values() for test in caught} == tests
