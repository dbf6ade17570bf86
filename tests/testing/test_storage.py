"""Every test of the storage suite catches a store with a defect."""

from __future__ import annotations

import pytest

from det_core.testing.storage import StorageCompliance
from tests.testing.broken_stores import CAUGHT_BY
from tests.testing.failing_tests import find_failures, list_defects

CAUGHT = list_defects(CAUGHT_BY)


@pytest.fixture(scope="module")
def failed() -> set[tuple[str, str]]:
    """Run the tests that should fail, and return those that did as (store, test)."""
    return find_failures("broken_stores", CAUGHT)


@pytest.mark.integration
@pytest.mark.parametrize(("store", "test"), CAUGHT)
def test_a_defect_is_caught(failed: set[tuple[str, str]], store: str, test: str) -> None:
    assert (store, test) in failed


def test_every_test_of_the_suite_catches_a_defect() -> None:
    tests = {name for name in dir(StorageCompliance) if name.startswith("test_")}
    assert {f"test_{test}" for caught in CAUGHT_BY.values() for test in caught} == tests
