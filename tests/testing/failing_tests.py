"""Runs of a compliance suite against implementations with defects."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]


def list_defects(caught_by: Mapping[type, Iterable[str]]) -> list[tuple[str, str]]:
    """Return all pairs (implementation, test) of a table that maps implementations to the tests that must fail."""
    return [(implementation.__name__, test) for implementation, tests in caught_by.items() for test in tests]


def find_failures(
    module: str, chosen: Iterable[tuple[str, str]], *suites: str, env: Mapping[str, str] | None = None
) -> set[tuple[str, str]]:
    """Run tests in a new process, and return those that failed as pairs (implementation, test).

    A failed case of a parametrized test is returned with and without its brackets.

    Args:
        module: module in this directory that defines the suites.
        chosen: pairs (implementation, test).
        suites: implementations whose tests all run.
        env: environment of the process. By default that of this process.
    """
    file = f"tests/testing/{module}.py"
    tests = [f"{file}::Test{name}::test_{test}" for name, test in chosen] + [f"{file}::Test{name}" for name in suites]
    command = [sys.executable, "-m", "pytest", "-q", "-rf", "--tb=no", "-p", "no:cacheprovider", *tests]
    ran = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=280)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    cases = re.findall(r"^FAILED \S+::Test(\w+)::test_(.+?)(?: - .*)?$", ran.stdout, re.MULTILINE)
    return {(name, part) for name, case in cases for part in (case, case.partition("[")[0])}
