"""Tests of formats of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from det_core.text import varying_names

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
