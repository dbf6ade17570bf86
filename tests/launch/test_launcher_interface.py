"""Values that launchers return."""

from __future__ import annotations

from typing import Any

import pytest

from det_core.interfaces.launcher import Exit


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
