"""Tests of a single mutant."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import psutil
from _environment import start_tests
from _test_costs import TestCost
from mutations import Mutant

CPU_LIMIT = 60
"""Highest sum of the CPU seconds of the tests that a mutant gets, as measured without it."""

_PR_SET_CHILD_SUBREAPER = 36
_STARTED_PROCESS = 1.5
"""CPU seconds that pytest takes before its first test."""


class MutantWorker:
    """Process that applies one mutant after another to a tree of its own."""

    def __init__(self, python: Path, tree: Path, costs: Mapping[str, Mapping[str, TestCost]]) -> None:
        self._python, self._tree, self._costs = python, tree, costs
        self._suites = {test: suite for suite, tests in costs.items() for test in tests}
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def test_mutant(self, mutant: Mutant, tests: set[str]) -> dict[str, Any]:
        """Run the tests until one fails that passes without the mutant. Those of ``make unit`` are first."""
        chosen = self._affordable(tests)
        spent, flaky = 0.0, set[str]()
        for is_unit, suite, names in self._groups(chosen):
            while waiting := [name for name in names if name not in flaky]:
                original = mutant.apply(self._tree)
                try:
                    failed, cpu = self._failing(suite, waiting)
                finally:
                    self._restore(self._tree / mutant.path, original)
                spent += cpu
                if failed in waiting and not is_unit and self._failing(suite, [failed])[0]:
                    flaky.add(failed)
                    continue
                if failed:
                    return self._result(mutant, "unit" if is_unit else "test", failed, spent, len(chosen))
                break
        return self._result(mutant, "survived", "", spent, len(chosen))

    def _restore(self, file: Path, original: bytes) -> None:
        file.write_bytes(original)
        # Python compares sizes and seconds only, and both may be those of the mutant.
        Path(cache_from_source(str(file))).unlink(missing_ok=True)

    def _result(self, mutant: Mutant, result: str, by: str, cpu: float, tests: int) -> dict[str, Any]:
        return {"key": mutant.key, "result": result, "by": by, "cpu": round(cpu, 1), "tests": tests}

    def _cost(self, test: str) -> TestCost:
        return self._costs[self._suites[test]][test]

    def _affordable(self, tests: set[str]) -> list[str]:
        chosen, total, suites = [], 0.0, set()
        known = [test for test in tests if test in self._suites]
        for test in sorted(known, key=lambda name: (self._cost(name).cpu, name)):
            key = (self._suites[test], self._cost(test).is_unit)
            total += self._cost(test).cpu + _STARTED_PROCESS * (key not in suites)
            suites.add(key)
            if total > CPU_LIMIT and chosen:
                break
            chosen.append(test)
        return chosen

    def _groups(self, tests: list[str]) -> Iterator[tuple[bool, str, list[str]]]:
        for is_unit in (True, False):
            groups: dict[str, list[str]] = {}
            for test in tests:
                if self._cost(test).is_unit is is_unit:
                    groups.setdefault(self._suites[test], []).append(test)
            for suite in sorted(groups, key=lambda name: len(groups[name]), reverse=True):
                files: dict[str, list[str]] = {}
                for test in groups[suite]:
                    files.setdefault(test.partition("::")[0], []).append(test)
                yield is_unit, suite, [test for file in files.values() for test in file]

    def _failing(self, suite: str, tests: list[str]) -> tuple[str, float]:
        """Return the first test that fails, a word for another failure, or ``""``, and the CPU seconds."""
        chosen, costs, log = (self._tree.with_suffix(suffix) for suffix in (".tests", ".costs", ".log"))
        chosen.write_text(json.dumps(tests), encoding="utf-8")
        costs.unlink(missing_ok=True)
        before = os.times()
        files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
        variables = {"DET_MUTANT_TESTS": str(chosen), "DET_MUTANT_COSTS": str(costs)}
        process = start_tests(self._python, self._tree, ["-x", "-q", "--timeout=120", *files], variables, log)
        try:
            process.wait(60 + 4 * sum(self._cost(test).seconds for test in tests))
        except subprocess.TimeoutExpired:
            return "time limit", CPU_LIMIT
        finally:
            self._end_descendants()
        after = os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        if process.returncode in (0, 5):
            return "", cpu
        ran = map(json.loads, costs.read_text(encoding="utf-8").splitlines()) if costs.exists() else ()
        return next((entry["test"] for entry in ran if entry["outcome"] == "failed"), "collection"), cpu

    def _end_descendants(self) -> None:
        for process in psutil.Process().children(recursive=True):
            process.kill()
        while True:
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                return
