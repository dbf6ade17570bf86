"""Tests of the backend suite catch backends with defects."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from det_core.testing import is_soak
from tests.testing.broken_backends import CAUGHT_BY

ROOT = Path(__file__).parents[2]
BROKEN = "tests/testing/broken_backends.py"

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.campaign]

CAUGHT = [(backend.__name__, test) for backend, tests in CAUGHT_BY.items() for test in tests]
CHOSEN = CAUGHT if is_soak() else CAUGHT[::3]


@pytest.fixture(scope="module")
def failed() -> set[tuple[str, str]]:
    """Run the tests that should fail, and return those that did as (backend, test)."""
    chosen = [f"{BROKEN}::Test{backend}::test_{test}" for backend, test in CHOSEN]
    command = [sys.executable, "-m", "pytest", "-q", "-rf", "--tb=no", "-p", "no:cacheprovider", *chosen]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    return set(re.findall(r"^FAILED \S+::Test(\w+)::test_(\w+)", ran.stdout, re.MULTILINE))


@pytest.mark.parametrize(("backend", "test"), CHOSEN)
def test_a_defect_is_caught(failed: set[tuple[str, str]], backend: str, test: str) -> None:
    assert (backend, test.partition("[")[0]) in failed
