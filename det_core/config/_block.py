"""Base model of all config blocks.

Unknown keys are errors. A key with the value null counts as missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, model_validator
from pydantic_core import PydanticCustomError

from det_core.config._length import Length
from det_core.config._secrets import mask_secrets

T = TypeVar("T")

Flag = Annotated[bool, Strict()]
"""Type of a field that takes true or false."""


def _fits_64_bits(number: int) -> int:
    if not -(1 << 63) <= number < 1 << 63:
        raise PydanticCustomError("integer", "expected an integer of at most 64 bits, as databases and frameworks have")
    return number


Whole = Annotated[int, Strict(), AfterValidator(_fits_64_bits)]
"""Type of a field that takes an integer."""
Count = Annotated[Whole, Field(ge=0)]
"""Type of a field that takes an integer >= 0."""
Positive = Annotated[Whole, Field(ge=1)]
"""Type of a field that takes an integer >= 1."""
Number = Annotated[float, Strict(), Field(allow_inf_nan=False)]
"""Type of a field that takes a finite number."""


def _not_zero(length: Length) -> Length:
    if length.value == 0:
        raise PydanticCustomError("length", "expected a length > 0; write 1 or more")
    return length


PositiveLength = Annotated[Length, AfterValidator(_not_zero)]
"""Type of a config field that takes a length of at least 1."""

IGNORED = "Accepted for compatibility with old configs; has no effect, unless the launcher uses it."
"""Description of the fields that `Ignored` marks."""
Ignored = Annotated[T, Field(description=IGNORED, json_schema_extra={"deprecated": True})]
"""Type of a field that concerns containers only. If it is set, `ExperimentConfig.notices` names it, unless the launcher
claims it (`LauncherSpec.claims`)."""


class UnknownKey(NamedTuple):
    """Placeholder for the value of an unknown key. The error about the key uses it to suggest a known one."""

    known: tuple[str, ...]


class Block(BaseModel):
    """Base of config blocks, immutable and without unknown keys. Its ``repr`` masks secrets."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    """Pydantic settings of all blocks."""

    @model_validator(mode="before")
    @classmethod
    def _prepare(cls, data: Any) -> Any:
        return prepare_block_input(cls, data) if isinstance(data, Mapping) else data

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, value if name is None or isinstance(value, Block) else mask_secrets(value, (name,))


def prepare_block_input(model: type[BaseModel], data: Mapping[str, Any], beside: Iterable[str] = ()) -> dict[str, Any]:
    """Remove nulls from the input of a model, and replace the values of unknown keys by `UnknownKey`.

    Determined AI also treats null as missing. A model that allows extra keys, or has complex aliases, has
    no unknown keys.

    Args:
        model: the model that will validate the input.
        data: the input.
        beside: keys that are known in addition to those of the model.
    """
    given = {key: value for key, value in data.items() if value is not None}
    aliases = {field.validation_alias for field in model.model_fields.values()} - {None}
    if model.model_config.get("extra") == "allow" or any(not isinstance(alias, str) for alias in aliases):
        return given
    known = tuple(sorted({*model.model_fields, *map(str, aliases), *beside}))
    return {
        key: value if key in known or isinstance(value, UnknownKey) else UnknownKey(known)
        for key, value in given.items()
    }
