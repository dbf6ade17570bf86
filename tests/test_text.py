"""Tests of formats of values."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from itertools import product
from typing import Any

import pytest

from det_core.text import format_value, varying_names

_ABSENT = object()


def test_varying_names_are_those_whose_values_differ_in_any_two_mappings() -> None:
    def obvious(each: Sequence[Mapping[str, Any]]) -> list[str]:
        names = list(dict.fromkeys(name for values in each for name in values))
        return [name for name in names if len({repr(values.get(name)) for values in each}) > 1] or names

    values = [_ABSENT, None, 1, 1.0, [1]]
    mappings = [
        {name: value for name, value in zip(names, pair, strict=True) if value is not _ABSENT}
        for names in ("ab", "ba")
        for pair in product(values, repeat=2)
    ]
    for length in range(3):
        for each in product(mappings, repeat=length):
            assert varying_names(each) == obvious(each), each
    for each in product(mappings[:5], repeat=4):
        assert varying_names(each) == obvious(each), each


def test_many_mappings_with_names_of_their_own_are_compared_once() -> None:
    """Trials may have different hyperparameters, and pages compare hundreds."""
    looked_up = []

    class Name(str):
        __slots__ = ()

        def __hash__(self) -> int:
            looked_up.append(self)
            return super().__hash__()

    each = [{Name(f"{number}"): 1} for number in range(100)]
    looked_up.clear()
    assert len(varying_names(each)) == 100
    assert len(looked_up) < 1000


@pytest.fixture
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize(
    ("zone", "moment", "shown"),
    [
        ("UTC-9", datetime(2026, 1, 1, 20, tzinfo=timezone.utc), "2026-01-02 05:00:00"),
        ("UTC-9", datetime.max.replace(tzinfo=timezone.utc), "9999-12-31 23:59:59"),
        ("UTC+5", datetime.min.replace(tzinfo=timezone.utc), "1-01-01 00:00:00"),
    ],
    indirect=["zone"],
)
def test_times_are_shown_in_the_local_zone_if_it_has_them(moment: datetime, shown: str) -> None:
    assert format_value(moment).lstrip("0") == shown  # some systems fill years with zeros
