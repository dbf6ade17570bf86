"""Tests of the backend suite catch backends with defects."""

from __future__ import annotations

import pytest

from det_core.testing import is_soak
from tests.testing.broken_backends import CAUGHT_BY
from tests.testing.failing_tests import find_failures, list_defects

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.campaign]

CAUGHT = list_defects(CAUGHT_BY)
CHOSEN = CAUGHT if is_soak() else CAUGHT[::3]


@pytest.fixture(scope="module")
def failed() -> set[tuple[str, str]]:
    """Run the tests that should fail, and return those that did as (backend, test)."""
    return find_failures("broken_backends", CHOSEN)


@pytest.mark.parametrize(("backend", "test"), CHOSEN)
def test_a_defect_is_caught(failed: set[tuple[str, str]], backend: str, test: str) -> None:
    assert (backend, test.partition("[")[0]) in failed
