"""Values that launchers return."""

from __future__ import annotations

from typing import Any

import pytest

from det_core.interfaces.launcher import Exit, Phase, Status


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"code": None}, "expected int as Exit.code, got None; if the exit code is unknown, use 1"),
        ({"code": 1, "cause": "preempted"}, "expected Cause as Exit.cause, got 'preempted'"),
        ({"code": 1, "message": None}, "expected str as Exit.message, got None"),
    ],
)
def test_a_wrong_end_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(TypeError) as caught:
        Exit(**fields)
    assert str(caught.value) == problem


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"phase": "running"}, "expected Phase as Status.phase, got 'running'"),
        ({"nodes": "n1"}, "expected a sequence of names as Status.nodes, got 'n1'"),
        ({"nodes": [1]}, "expected a sequence of names as Status.nodes, got [1]"),
        ({"handle": 4711}, "expected str as Status.handle, got 4711"),
        ({"message": None}, "expected str as Status.message, got None"),
    ],
)
def test_a_wrong_state_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(TypeError) as caught:
        Status(**{"phase": Phase.RUNNING, **fields})
    assert str(caught.value) == problem
