"""Every test of the storage suite catches a store with a defect."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from det_core.testing.storage import StorageCompliance
from tests.testing.broken_stores import CAUGHT_BY

ROOT = Path(__file__).parents[2]
BROKEN = "tests/testing/broken_stores.py"


@pytest.fixture(scope="module")
def failed() -> set[tuple[str, str]]:
    """Run the tests that should fail, and return those that did as (store, test)."""
    chosen = [f"{BROKEN}::Test{store.__name__}::test_{test}" for store, tests in CAUGHT_BY.items() for test in tests]
    command = [sys.executable, "-m", "pytest", "-q", "-rf", "--tb=no", "-p", "no:cacheprovider", *chosen]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    return set(re.findall(r"^FAILED \S+::Test(\w+)::test_(\w+)", ran.stdout, re.MULTILINE))


@pytest.mark.integration
@pytest.mark.parametrize(
    ("store", "test"), [(store.__name__, test) for store, tests in CAUGHT_BY.items() for test in tests]
)
def test_a_defect_is_caught(failed: set[tuple[str, str]], store: str, test: str) -> None:
    assert (store, test) in failed


def test_every_test_of_the_suite_catches_a_defect() -> None:
    tests = {name for name in dir(StorageCompliance) if name.startswith("test_")}
    assert {f"test_{test}" for caught in CAUGHT_BY.values() for test in caught} == tests
