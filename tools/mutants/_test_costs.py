"""Tests that run the statements of mutants, and what they cost."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from coverage import CoverageData
from mutations import Mutant

_OF_ALL_MODULES = ("tests/test_public_api.py", "tests/config/test_config_reference.py")


@dataclass(frozen=True)
class TestCost:
    """CPU seconds of a test with its child processes, seconds on a clock, and whether ``make unit`` runs it."""

    cpu: float
    seconds: float
    is_unit: bool


def read_costs(file: Path) -> dict[str, TestCost]:
    """Return the costs of the tests of a suite that passed, by the tests' names."""
    entries = map(json.loads, file.read_text(encoding="utf-8").splitlines()) if file.exists() else ()
    return {
        entry["test"]: TestCost(entry["cpu"], entry["seconds"], entry["unit"])
        for entry in entries
        if entry["outcome"] == "passed"
    }


def covering_tests(data_file: Path, tree: Path, mutants: Iterable[Mutant]) -> dict[Mutant, set[str]]:
    """Return the tests that run one of the lines of each mutant.

    A statement outside of functions runs at the import of its module, which no test has for itself. Its tests are those
    that run anything of the module, and those that compare all modules with what is recorded about them.
    """
    data = CoverageData(str(data_file))
    data.read()
    of_all_modules = {test for test in data.measured_contexts() if test.startswith(_OF_ALL_MODULES)}
    found = {}
    for mutant in mutants:
        by_line = data.contexts_by_lineno(str(tree / mutant.path))
        lines = range(mutant.first, mutant.last + 1) if mutant.in_function else by_line
        found[mutant] = {test for line in lines for test in by_line.get(line, ()) if test}
        if not mutant.in_function:
            found[mutant] |= of_all_modules
    return found
