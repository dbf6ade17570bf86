"""Merging of the files and the metadata of several ranks, and errors about conflicts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from det_core.core._checkpoints._merge import RankFiles, check_same_content, find_owners, merge_metadata


@pytest.mark.parametrize(
    ("parts", "united"),
    [
        ([None, None], {}),
        ([{"a": 1}, None, {"b": [2]}], {"a": 1, "b": [2]}),
        ([{"a": 1, "b": [1, {"c": 2}]}, {"a": 1, "b": [1, {"c": 2}]}], {"a": 1, "b": [1, {"c": 2}]}),
        ([{"n": {"x": 1, "d": {"l": 0}}}, {"n": {"d": {"r": 1}}}], {"n": {"x": 1, "d": {"l": 0, "r": 1}}}),
        ([{"n": {}}, {"n": {"y": None}}], {"n": {"y": None}}),
    ],
)
def test_metadata_of_all_ranks_is_merged(parts: list[Any], united: dict[str, Any]) -> None:
    assert merge_metadata(parts) == united


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([{"a": 1}, None, {"a": 2}], r"/a is 1 on rank 0 and 2 on rank 2"),
        ([{}, {"n": {"m": {"x": [1]}}}, {"n": {"m": {"x": [2]}}}], r"/n/m/x is \[1\] on rank 1 and \[2\] on rank 2"),
        ([{"n": {"x": 1}}, {"n": 3}], r"/n is \{'x': 1\} on rank 0 and 3 on rank 1"),
        ([{"n": 3}, {"n": {"x": 1}}], r"/n is 3 on rank 0 and \{'x': 1\} on rank 1"),
    ],
)
def test_a_metadata_conflict_names_the_key_and_the_ranks(parts: list[Any], message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        merge_metadata(parts)


def test_merging_does_not_change_the_arguments() -> None:
    first = {"n": {"x": 1}}
    merge_metadata([first, {"n": {"y": 2}}])
    assert first == {"n": {"x": 1}}


def test_every_path_has_its_owners_and_a_directory_counts_once() -> None:
    here = ("host", 1, 2)
    twice = RankFiles({"a": 1, "d/": 0}, here)
    offers = [twice, twice, RankFiles({"a": 1, "d/x": 3}), RankFiles({"e/": 0})]
    assert find_owners(offers) == {"a": [0, 2], "d/": [0], "d/x": [2], "e/": [3]}


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({"a": 1}, {"a": 2}, "'a' is 1 bytes on rank 0 and 2 bytes on rank 1"),
        ({"a": 1}, {"a/": 0}, "'a' is a file on rank 0 and a directory on rank 1"),
        ({"a/b/c": 1}, {"a/b": 2}, "'a/b' is a file on rank 1 and a directory on rank 0"),
    ],
)
def test_a_file_conflict_names_the_path_and_the_ranks(
    first: dict[str, int], second: dict[str, int], message: str
) -> None:
    with pytest.raises(RuntimeError, match=message):
        find_owners([RankFiles(first), RankFiles(second)])


def test_equal_files_are_no_conflict_and_different_ones_are() -> None:
    check_same_content([{"a": 1}, {"a": 1, "b": 2}])
    with pytest.raises(RuntimeError, match="'b'.* on rank 1 .* on rank 2"):
        check_same_content([{}, {"b": 1}, {"b": 2}])


def test_equal_values_that_are_not_numbers_are_no_conflict() -> None:
    """NaN must equal NaN here, although it differs from itself in Python."""
    parts = [{"loss": float("nan"), "all": [float("nan"), 1]} for _ in range(2)]
    assert json.dumps(merge_metadata(parts)) == '{"loss": NaN, "all": [NaN, 1]}'
    assert merge_metadata([{"a": 1}, {"a": 1.0}]) == {"a": 1}
    with pytest.raises(RuntimeError, match="/loss is nan on rank 0 and 1.0 on rank 1"):
        merge_metadata([{"loss": float("nan")}, {"loss": 1.0}])
