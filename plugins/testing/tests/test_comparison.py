"""Forms of values for which ``==`` compares every bit."""

from __future__ import annotations

import math
from typing import Any

import pytest
from det_testing.comparison import bitwise_form


class Array:
    """Array with the attributes that the comparison reads."""

    def __init__(self, content: bytes, shape: tuple[int, ...] = (2,), dtype: str = "float32") -> None:
        self.content, self.shape, self.dtype = content, shape, dtype

    def tobytes(self) -> bytes:
        return self.content


class Tensor:
    def __init__(self, array: Array) -> None:
        self.array = array

    def numpy(self) -> Array:
        return self.array


@pytest.mark.parametrize(
    "value", [math.nan, -0.0, 1, "a", None, [1.5, (math.nan,)], {"a": [0.1]}, Array(b"ab"), Tensor(Array(b"ab"))]
)
def test_equal_values_have_equal_forms(value: Any) -> None:
    assert bitwise_form(value) == bitwise_form(value)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (0.0, -0.0),
        (0.1, math.nextafter(0.1, 1)),
        ([0.0], [-0.0]),
        ({"a": {"b": 0.0}}, {"a": {"b": -0.0}}),
        (Array(b"ab"), Array(b"ac")),
        (Array(b"ab"), Array(b"ab", shape=(1, 2))),
        (Array(b"ab"), Array(b"ab", dtype="float64")),
        (Tensor(Array(b"ab")), Tensor(Array(b"ac"))),
        (1, 2),
    ],
)
def test_different_bits_have_different_forms(one: Any, other: Any) -> None:
    assert bitwise_form(one) != bitwise_form(other)


def test_tuples_equal_lists_as_in_json() -> None:
    assert bitwise_form((1.5, 2)) == bitwise_form([1.5, 2])
