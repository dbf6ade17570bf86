"""Lengths of training and of periods, in batches, records or epochs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic_core import CoreSchema


class Unit(str, Enum):
    """Unit of a `Length`."""

    BATCHES = "batches"
    """Batches, each of which all workers of a trial train together."""
    RECORDS = "records"
    """Records of the training data."""
    EPOCHS = "epochs"
    """Passes over the training data."""


@dataclass(frozen=True)
class Length:
    """Length such as ``{"batches": 100}``, ``{"records": 6400}``, ``{"epochs": 3}`` or 100.

    The trial's code decides on the unit of a bare number.

    Args:
        value: number of units, >= 0 and < 2^63.
        unit: the unit, or None for a bare number.
    """

    value: int
    unit: Unit | None = None

    @classmethod
    def parse(cls, source: Any) -> Length:
        """Return the length that a config value describes.

        Raises:
            ValueError: ``source`` is not a length.
        """
        if isinstance(source, Length):
            return source
        value, unit = source, None
        given = [name for name in _UNITS if name in source] if isinstance(source, dict) else []
        if len(given) > 1:
            expected = "expected one unit, not {units}; for example {example}"
            raise _mismatch(expected, units=" and ".join(given), example="{batches: 100}")
        if given and len(source) == 1:
            value, unit = source[given[0]], Unit(given[0])
        if type(value) is not int or value < 0:
            raise _mismatch("expected a length >= 0 such as {example}", example="`batches: 100`, `epochs: 3` or 100")
        if value >= 1 << 63:
            raise _mismatch("expected a length below 2 ** 63, as databases and frameworks have; lower it")
        return cls(value, unit)

    def dump(self) -> int | dict[str, int]:
        """Return the length as users write it in a config."""
        return {self.unit.value: self.value} if self.unit else self.value

    def to_batches(self, *, records_per_batch: int, batches_per_epoch: int) -> int:
        """Return the length in batches. A bare number counts as batches.

        Records are rounded down to whole batches, but not to 0 batches unless the length is 0.

        Args:
            records_per_batch: the global batch size.
            batches_per_epoch: number of batches that each worker trains in one pass over the data.
        """
        match self.unit:
            case Unit.RECORDS:
                return max(self.value // records_per_batch, min(self.value, 1))
            case Unit.EPOCHS:
                return self.value * batches_per_epoch
        return self.value

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        as_written = core_schema.plain_serializer_function_ser_schema(cls.dump)
        return core_schema.no_info_plain_validator_function(cls.parse, serialization=as_written)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        count = {"type": "integer", "minimum": 0}
        units = [
            {
                "type": "object",
                "properties": {unit: {**count, "description": f"Number of {unit}."}},
                "required": [unit],
                "additionalProperties": False,
            }
            for unit in _UNITS
        ]
        return {"anyOf": [*units, count]}


_UNITS = tuple(unit.value for unit in Unit)


def _mismatch(expected: str, **context: str) -> ValueError:
    from pydantic_core import PydanticCustomError  # workers, whose lengths are valid, do not need it

    return PydanticCustomError("length", expected, context)
