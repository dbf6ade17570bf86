"""Tests of compliance suites that pass if the suite notices the defect of an implementation."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import pytest
from det_testing.suite import ComplianceSuite

CaughtBy = Mapping[type, Iterable[str]]
"""Implementations with one defect each, mapped to the tests that must notice it.

A test is named without ``test_``, and with the case in brackets if it is parametrized.
"""


def make_defect_tests(
    suite: type[ComplianceSuite],
    caught_by: CaughtBy,
    describe: Callable[[Any], Mapping[str, Any]],
    *,
    integration: Collection[str] = (),
) -> dict[str, type]:
    """Return a test class for each implementation, with the tests of the suite that must fail for it.

    CI runs a test that starts processes with the first implementation that it must notice only. The soak runs all.

    Args:
        suite: the compliance suite.
        caught_by: the implementations and the tests.
        describe: returns the attributes of the suite that describe an implementation.
        integration: names of the tests that start processes.
    """
    made, noticed = {}, set()
    for implementation, tests in caught_by.items():
        name = f"Test{implementation.__name__}"
        made[name] = type(name, (suite,), {"chosen": [f"test_{test}" for test in tests], **describe(implementation)})
        for test in list_tests(suite):
            setattr(made[name], test, None)  # not collected
        for case in made[name].chosen:
            test = case.partition("[")[0]
            must_fail = _require_failure(getattr(suite, test))
            if test in integration:
                must_fail = pytest.mark.integration(pytest.mark.soak(must_fail) if case in noticed else must_fail)
            setattr(made[name], test, must_fail)
            noticed.add(case)
    return made


def drop_other_cases(items: list[pytest.Item]) -> None:
    """Remove the cases from collected tests that their class has not ``chosen``, such as those that need not notice
    its defect."""
    items[:] = [item for item in items if _is_chosen(item)]


def _is_chosen(item: pytest.Item) -> bool:
    chosen = getattr(getattr(item, "cls", None), "chosen", None)
    return chosen is None or item.name in chosen or item.name.partition("[")[0] in chosen


def list_tests(suite: type) -> set[str]:
    """Return the names of the tests of a suite."""
    return {name for name in dir(suite) if name.startswith("test_")}


def caught_tests(caught_by: CaughtBy) -> set[str]:
    """Return the names of the tests that must notice a defect."""
    return {f"test_{test.partition('[')[0]}" for tests in caught_by.values() for test in tests}


def _require_failure(test: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(self: ComplianceSuite, **fixtures: Any) -> None:
        with pytest.raises((Exception, pytest.fail.Exception)):
            test(self, **fixtures)

    return run
