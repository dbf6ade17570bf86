"""Tests of the backend suite notice backends with defects."""

from __future__ import annotations

import pytest

from det_core.testing.backend import BackendCompliance
from tests.testing.broken_backends import CAUGHT_BY
from tests.testing.defects import list_tests, make_defect_tests

pytestmark = pytest.mark.slow

UNIT = {"test_a_process_of_somebody_else_has_no_rank"}


class BrokenBackends(BackendCompliance):
    plugin = "broken_backends"
    limit = 20.0


INTEGRATION = list_tests(BackendCompliance) - UNIT
globals().update(
    make_defect_tests(BrokenBackends, CAUGHT_BY, lambda backend: {"name": backend.__name__}, integration=INTEGRATION)
)
