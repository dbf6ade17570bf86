"""Tests of the backend suite notice backends with defects."""

from __future__ import annotations

import signal
import time
from contextlib import nullcontext
from typing import Any

import pytest
from det_testing.backend import BackendCompliance
from det_testing.backend.failure_tests import _assert_failed_in_time

from plugins.testing.tests.broken_backends import CAUGHT_BY, Ring
from plugins.testing.tests.defects import list_tests, make_defect_tests

UNIT = {"test_a_process_of_somebody_else_has_no_rank"}


class BrokenBackends(BackendCompliance):
    plugin = "broken_backends"
    limit = 20.0


def describe(backend: type[Ring]) -> dict[str, Any]:
    """Return the attributes of the suite for a backend."""
    return {"name": backend.__name__, "pytestmark": [pytest.mark.slow]}


INTEGRATION = list_tests(BackendCompliance) - UNIT
globals().update(make_defect_tests(BrokenBackends, CAUGHT_BY, describe, integration=INTEGRATION))


class EndedScript:
    """Script that has ended with a code, and left these processes."""

    def __init__(self, code: int, *left: str) -> None:
        self.code, self.left = code, left

    def wait(self, seconds: float) -> int:
        return self.code

    def output(self) -> str:
        return "its output"

    def assert_nothing_is_left(self) -> None:
        assert not self.left


@pytest.mark.parametrize(
    ("launch", "seconds", "passes"),
    [
        (EndedScript(7), 0.0, True),
        (EndedScript(-signal.SIGKILL), 0.0, True),
        (EndedScript(0), 0.0, False),
        (EndedScript(7, "sleep 1000"), 0.0, False),
        (EndedScript(7), 1000.0, False),
    ],
    ids=["failed", "killed", "succeeded", "left a process", "took too long"],
)
def test_a_job_has_failed_in_time_if_it_says_so_and_nothing_is_left(launch: Any, seconds: float, passes: bool) -> None:
    with nullcontext() if passes else pytest.raises(AssertionError):
        _assert_failed_in_time(launch, time.monotonic() - seconds)
