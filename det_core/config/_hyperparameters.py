"""Hyperparameters: what a search may choose from, and how a random trial chooses."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError
from typing_extensions import TypeAliasType

from det_core.config._block import Block, Number, Positive, Whole


class Const(Block):
    """Always the same value. A bare literal means this."""

    type: Literal["const"] = "const"
    val: Any = None

    def sample(self, rng: random.Random) -> Any:
        return self.val


class Categorical(Block):
    """One of ``vals``, all equally likely."""

    type: Literal["categorical"]
    vals: Annotated[tuple[Any, ...], Field(min_length=1)]

    def sample(self, rng: random.Random) -> Any:
        return rng.choice(self.vals)


class _Range(Block):
    """``minval <= maxval``; ``count`` is how many points a grid takes."""

    minval: Number
    maxval: Number
    count: Positive | None = None

    @field_validator("maxval")
    @classmethod
    def _not_below_minval(cls, maxval: float, info: ValidationInfo) -> float:
        minval = info.data.get("minval", maxval)
        if maxval < minval:
            raise PydanticCustomError(
                "range", "expected maxval >= minval, which is {minval}; swap or correct them", {"minval": minval}
            )
        return maxval


class Int(_Range):
    """A whole number between minval and maxval, both included."""

    type: Literal["int"]
    minval: Whole
    maxval: Whole

    def sample(self, rng: random.Random) -> int:
        return rng.randint(self.minval, self.maxval)


class Double(_Range):
    """A number between minval and maxval."""

    type: Literal["double"]

    def sample(self, rng: random.Random) -> float:
        return rng.uniform(self.minval, self.maxval)


class Log(_Range):
    """``base`` to the power of a number between minval and maxval."""

    type: Literal["log"]
    base: Annotated[Number, Field(gt=0)]

    @field_validator("base")
    @classmethod
    def _not_too_big(cls, base: float, info: ValidationInfo) -> float:
        maxval = info.data.get("maxval", 0.0)
        if math.log(base) * maxval > math.log(sys.float_info.max):
            raise PydanticCustomError(
                "range",
                "expected base ** maxval to be a number, but {base} ** {maxval} is too big; "
                "minval and maxval are exponents, so lower maxval",
                {"base": base, "maxval": maxval},
            )
        return base

    def sample(self, rng: random.Random) -> float:
        return float(self.base ** rng.uniform(self.minval, self.maxval))


Choice = Const | Categorical | Int | Double | Log


def _form(value: Any) -> str:
    if isinstance(value, Mapping):
        return "choice" if "type" in value else "nested"
    return "choice" if isinstance(value, Block) else "literal"


def _constant(value: Any) -> Const:
    return Const(val=value)


# What the discriminator says, for readers of the JSON schema.
_NESTED: JsonDict = {"properties": {"type": False}}
_LITERAL = {"type": ["null", "boolean", "number", "string", "array"]}

if TYPE_CHECKING:
    Hyperparameter = Choice | dict[str, Any]
else:
    Hyperparameter = TypeAliasType(
        "Hyperparameter",
        Annotated[
            Annotated[Choice, Field(discriminator="type"), Tag("choice")]
            | Annotated[dict[str, "Hyperparameter"], Field(json_schema_extra=_NESTED), Tag("nested")]
            | Annotated[Any, AfterValidator(_constant), WithJsonSchema(_LITERAL), Tag("literal")],
            Discriminator(_form),
        ],
    )
"""A choice, a mapping of hyperparameters (one without the key ``type``), or a bare literal."""

_ADAPTER: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Hyperparameter])


def sample_hyperparameters(hyperparameters: Mapping[str, Any], rng: random.Random) -> dict[str, Any]:
    """Choose the values of one random trial.

    Args:
        hyperparameters: ``ExperimentConfig.hyperparameters``, or the same as a config holds it.
        rng: where the choices come from; the same state gives the same values.
    """
    return _sample(_ADAPTER.validate_python(hyperparameters), rng)


def _sample(space: Mapping[str, Any], rng: random.Random) -> dict[str, Any]:
    # By name: the order in which a database returns the keys must not change the trial.
    chosen = {
        name: _sample(space[name], rng) if isinstance(space[name], Mapping) else space[name].sample(rng)
        for name in sorted(space)
    }
    return {name: chosen[name] for name in space}
