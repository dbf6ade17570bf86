"""Hyperparameters: what a search may choose from, and how a random trial chooses."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Mapping, Sequence
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


class _Fixed(Block):
    """Not a number to scale."""

    def scale(self, value: Any, factor: float) -> Any:
        return value


class Const(_Fixed):
    """Always the same value. A bare literal means this."""

    type: Literal["const"] = "const"
    val: Any = None

    def sample(self, rng: random.Random) -> Any:
        return self.val

    def points(self) -> Sequence[Any]:
        return (self.val,)


class Categorical(_Fixed):
    """One of ``vals``, all equally likely."""

    type: Literal["categorical"]
    vals: Annotated[tuple[Any, ...], Field(min_length=1)]

    def sample(self, rng: random.Random) -> Any:
        return rng.choice(self.vals)

    def points(self) -> Sequence[Any]:
        return self.vals


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

    def _spread(self, count: int) -> Sequence[float]:
        """``count`` numbers, evenly from minval to maxval; their middle if it is one."""
        if count == 1:
            return [self.minval + (self.maxval - self.minval) / 2]
        step = (self.maxval - self.minval) / (count - 1)
        return [*(self.minval + place * step for place in range(count - 1)), self.maxval]


class Int(_Range):
    """A whole number between minval and maxval, both included."""

    type: Literal["int"]
    minval: Whole
    maxval: Whole

    def sample(self, rng: random.Random) -> int:
        return rng.randint(self.minval, self.maxval)

    def scale(self, value: int, factor: float) -> int:
        scaled = math.ceil(value * factor) if factor > 1 else math.floor(value * factor)
        return min(max(scaled, self.minval), self.maxval)

    def points(self) -> Sequence[int]:
        count = min(_counted(self), self.maxval - self.minval + 1)
        gaps = count - 1
        if gaps == 0:
            return [_divide(self.minval + self.maxval, 2)]
        return [_divide(self.minval * (gaps - place) + self.maxval * place, gaps) for place in range(count)]


class Double(_Range):
    """A number between minval and maxval."""

    type: Literal["double"]

    def sample(self, rng: random.Random) -> float:
        return rng.uniform(self.minval, self.maxval)

    def scale(self, value: float, factor: float) -> float:
        return min(max(value * factor, self.minval), self.maxval)

    def points(self) -> Sequence[float]:
        return self._spread(_counted(self))


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

    def scale(self, value: float, factor: float) -> float:
        low, high = sorted((float(self.base**self.minval), float(self.base**self.maxval)))
        return min(max(value * factor, low), high)

    def points(self) -> Sequence[float]:
        return [float(self.base**exponent) for exponent in self._spread(_counted(self))]


def _counted(choice: _Range) -> int:
    if choice.count is None:
        raise PydanticCustomError("grid", "expected a `count` of points, which a grid needs; add it")
    return choice.count


def _divide(number: int, by: int) -> int:
    """The nearest whole number; halves go away from zero."""
    nearest = (2 * abs(number) + by) // (2 * by)
    return nearest if number >= 0 else -nearest


Choice = Const | Categorical | Int | Double | Log


def _form(value: Any) -> str:
    if isinstance(value, Mapping):
        return "choice" if "type" in value else "nested"
    return "choice" if isinstance(value, Block) else "literal"


def _constant(value: Any) -> Const:
    return Const(val=value)


def _named(name: str) -> str:
    if not name:
        raise PydanticCustomError("name", "expected a name such as learning_rate, found an empty one")
    return name


HyperparameterName = Annotated[str, AfterValidator(_named)]

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
            | Annotated[dict[HyperparameterName, "Hyperparameter"], Field(json_schema_extra=_NESTED), Tag("nested")]
            | Annotated[Any, AfterValidator(_constant), WithJsonSchema(_LITERAL), Tag("literal")],
            Discriminator(_form),
        ],
    )
"""A choice, a mapping of hyperparameters (one without the key ``type``), or a bare literal."""

_ADAPTER: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[HyperparameterName, Hyperparameter])


def sample_hyperparameters(hyperparameters: Mapping[str, Any], rng: random.Random) -> dict[str, Any]:
    """Choose the values of one random trial.

    Args:
        hyperparameters: ``ExperimentConfig.hyperparameters``, or the same as a config holds it.
        rng: where the choices come from; the same state gives the same values.
    """
    return _sample(space_of(hyperparameters), rng)


def space_of(hyperparameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Nested mappings of choices, from the same as a config holds it."""
    return _ADAPTER.validate_python(hyperparameters)


def _sample(space: Mapping[str, Any], rng: random.Random) -> dict[str, Any]:
    # By name: the order in which a database returns the keys must not change the trial.
    chosen = {
        name: _sample(space[name], rng) if isinstance(space[name], Mapping) else space[name].sample(rng)
        for name in sorted(space)
    }
    return {name: chosen[name] for name in space}


def explore_hyperparameters(
    hyperparameters: Mapping[str, Any],
    chosen: Mapping[str, Any],
    rng: random.Random,
    *,
    resample_probability: float,
    perturb_factor: float,
) -> dict[str, Any]:
    """Values near those of another trial, as population based training tries them.

    Args:
        hyperparameters: as of `sample_hyperparameters`.
        chosen: the other trial's.
        rng: where the choices come from.
        resample_probability: of each value to be sampled anew, 0 to 1.
        perturb_factor: every other number is multiplied by 1 plus or minus this, within its range.
    """
    factors = (1 - perturb_factor, 1 + perturb_factor)

    def explore(space: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
        changed = {name: change(space[name], values[name]) for name in sorted(space)}
        return {name: changed[name] for name in space}

    def change(choice: Any, value: Any) -> Any:
        if isinstance(choice, Mapping):
            return explore(choice, value)
        return choice.sample(rng) if rng.random() < resample_probability else choice.scale(value, rng.choice(factors))

    return explore(space_of(hyperparameters), chosen)
