"""Conversion of names and values."""

from __future__ import annotations

import math
from typing import Any

import pytest
from det_mlflow._values import NameTable, clean_name, flatten_values, format_number, format_parameter


@pytest.mark.parametrize(
    ("name", "cleaned"),
    [
        ("training/loss", "training/loss"),
        ("top 5: größe-a_b.c", "top 5: größe-a_b.c"),
        ("a@b\nc", "a_b_c"),
        ("/a//b/./../c/", "a/b/c"),
        ("..", "_"),
        ("", "_"),
        ("x" * 300, "x" * 250),
        ("x" * 249 + "/y", "x" * 249),
    ],
)
def test_names_become_those_that_mlflow_accepts(name: str, cleaned: str) -> None:
    assert clean_name(name) == cleaned


def test_two_names_never_become_one() -> None:
    notices: list[str] = []
    names = NameTable(notices.append)
    assert [names.find(each) for each in ("a@b", "a#b", "a@b", "a#b", "a_b", "c")] == [
        "a_b",
        None,
        "a_b",
        None,
        None,
        "c",
    ]
    assert len(notices) == 3


def test_nested_values_are_joined_by_dots() -> None:
    values = {"a": 1, "b": {"c": {"d": 2}, "e": {}}, "f.g": [3]}
    assert dict(flatten_values(values)) == {"a": 1, "b.c.d": 2, "b.e": {}, "f.g": [3]}


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (1, 1.0),
        (True, 1.0),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (10**400, None),
        ("1", None),
        (None, None),
        ([1], None),
    ],
)
def test_numbers_are_those_of_protobuf(value: Any, number: Any) -> None:
    assert format_number(value) == number


@pytest.mark.parametrize(
    ("value", "text"), [(0.1, "0.1"), (True, "True"), (None, "None"), (["ä", 1], '["ä", 1]'), ({}, "{}")]
)
def test_parameters_are_written_as_mlflow_does(value: Any, text: str) -> None:
    assert format_parameter(value) == text
