"""Every test of the suite for search methods notices a search method with a defect."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from det_testing.search_method import SearchMethodCompliance

from plugins.testing.tests import broken_search_methods
from plugins.testing.tests.broken_search_methods import CAUGHT_BY, HasNoLength, Sound
from plugins.testing.tests.defects import caught_tests, list_tests, make_defect_tests

pytestmark = pytest.mark.usefixtures("registered")

PLUGIN = broken_search_methods.__name__
OPTIONS: dict[str, Any] = {"max_trials": 6, "max_length": {"batches": 10}}


def describe(method: type[Sound]) -> dict[str, Any]:
    """Return the attributes of the suite for a search method."""
    options = {"max_trials": 6} if method is HasNoLength else OPTIONS
    return {"name": method.__name__, "options": (options,), "learns": method.learns}


INTEGRATION = {"test_another_process_gives_the_same_actions"}
globals().update(make_defect_tests(SearchMethodCompliance, CAUGHT_BY, describe, integration=INTEGRATION))


@pytest.mark.soak
class TestSound(SearchMethodCompliance):
    name = "Sound"
    options: ClassVar = (OPTIONS,)


def test_every_test_of_the_suite_notices_a_defect() -> None:
    assert caught_tests(CAUGHT_BY) == list_tests(SearchMethodCompliance)
