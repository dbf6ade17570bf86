"""Parsing of lengths, and their conversion to batches."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from det_core.config import Length, PositiveLength, Unit

FORMS = [
    (100, Length(100)),
    (0, Length(0)),
    ({"batches": 100}, Length(100, Unit.BATCHES)),
    ({"records": 6400}, Length(6400, Unit.RECORDS)),
    ({"epochs": 3}, Length(3, Unit.EPOCHS)),
]


@pytest.mark.parametrize(("written", "length"), FORMS)
def test_a_length_is_parsed_and_dumped(written: Any, length: Length) -> None:
    assert Length.parse(written) == length
    assert length.dump() == written
    assert Length.parse(length) is length


NO_LENGTHS = [
    -1,
    True,
    1.0,
    "3",
    None,
    [],
    {},
    {"steps": 3},
    {"batches": -1},
    {"batches": "3"},
]


@pytest.mark.parametrize("written", NO_LENGTHS, ids=str)
def test_other_values_are_rejected(written: Any) -> None:
    with pytest.raises(ValueError, match="expected a length"):
        Length.parse(written)


BATCHES = [
    (Length(7), 7),
    (Length(7, Unit.BATCHES), 7),
    (Length(100, Unit.RECORDS), 3),
    (Length(31, Unit.RECORDS), 1),
    (Length(0, Unit.RECORDS), 0),
    (Length(2, Unit.EPOCHS), 20),
]


@pytest.mark.parametrize(("length", "batches"), BATCHES)
def test_a_length_converts_to_batches(length: Length, batches: int) -> None:
    assert length.to_batches(records_per_batch=32, batches_per_epoch=10) == batches


def test_a_positive_length_is_not_zero() -> None:
    adapter: TypeAdapter[Length] = TypeAdapter(PositiveLength)
    assert adapter.validate_python({"epochs": 1}) == Length(1, Unit.EPOCHS)
    with pytest.raises(ValidationError, match="expected a length > 0"):
        adapter.validate_python({"epochs": 0})
