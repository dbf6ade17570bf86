"""Plugin of pytest that records what each test costs, and runs chosen tests in a given order.

``DET_MUTANT_COSTS=FILE`` appends a line of JSON per test. ``DET_MUTANT_TESTS=FILE`` names the tests to run.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import _trace_process
import pytest

OTHER = ("integration", "slow", "campaign", "gpu")
"""Markers of tests that ``make unit`` does not run."""


def _cpu_seconds() -> float:
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    _trace_process.switch_test(item.nodeid)
    cpu, clock = _cpu_seconds(), time.monotonic()
    try:
        return (yield)
    finally:
        cost = {
            "test": item.nodeid,
            "cpu": round(_cpu_seconds() - cpu, 4),
            "seconds": round(time.monotonic() - clock, 4),
            "unit": not any(map(item.get_closest_marker, OTHER)),
            "outcome": _outcomes.pop(item.nodeid, "passed"),
        }
        _trace_process.switch_test("")
        if file := os.environ.get("DET_MUTANT_COSTS"):
            with Path(file).open("a", encoding="utf-8") as costs:
                costs.write(json.dumps(cost) + "\n")


_outcomes: dict[str, str] = {}


def pytest_runtest_logreport(report: Any) -> None:
    if report.outcome != "passed":
        _outcomes[report.nodeid] = report.outcome


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if file := os.environ.get("DET_MUTANT_TESTS"):
        by_name = {item.nodeid: item for item in items}
        chosen = [by_name[name] for name in json.loads(Path(file).read_text(encoding="utf-8")) if name in by_name]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen
