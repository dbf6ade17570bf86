"""Models of hyperparameters, and random sampling of their values."""

from __future__ import annotations

import json
import math
import random
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
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
from det_core.similar_names import closest_name

_NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")
"""Pattern of texts that YAML reads as numbers without quotes."""


class _Fixed(Block):
    """Base of hyperparameters whose values are not scaled."""

    def scale(self, value: Any, factor: float) -> Any:
        """Return the value unchanged."""
        return value


class Const(_Fixed):
    """Hyperparameter with a single value. A bare literal in the config is short for it."""

    type: Literal["const"] = "const"
    """Kind of the hyperparameter."""
    val: Any = Field(default=None, examples=[64])
    """Value of all trials, of any JSON type."""

    def sample(self, rng: random.Random) -> Any:
        """Return the value."""
        return self.val

    def points(self) -> Sequence[Any]:
        """Return the value as the only point of a grid."""
        return (self.val,)

    def fits(self, value: Any) -> bool:
        """Return whether a trial may have the value."""
        return json_form(value) == json_form(self.val)


class Categorical(_Fixed):
    """Choice among the items of ``vals``, all equally likely."""

    type: Literal["categorical"]
    """Kind of the hyperparameter."""
    vals: Annotated[tuple[Option, ...], Field(min_length=1)] = Field(examples=[["relu", "tanh"]])
    """Values to choose from, of any JSON types, at least one. Mappings may contain further hyperparameters, which only
    trials with this item have: mappings with ``type: double`` and ``minval``, and so on."""

    def sample(self, rng: random.Random) -> int:
        """Return the index of a random item."""
        return rng.randrange(len(self.vals))


class _Range(Block):
    """Base of numeric ranges, with ``minval <= maxval``."""

    minval: Number = Field(examples=[0.1], json_schema_extra={"unit": "as the value"})
    """Lower limit, included."""
    maxval: Number = Field(examples=[0.5], json_schema_extra={"unit": "as the value"})
    """Upper limit, included, >= minval."""
    count: Positive | None = Field(default=None, examples=[5], json_schema_extra={"unit": "points"})
    """Number of points in a grid search, >= 1. Other searches ignore it."""

    @field_validator("maxval")
    @classmethod
    def _not_below_minval(cls, maxval: float, info: ValidationInfo) -> float:
        minval = info.data.get("minval", maxval)
        if maxval < minval:
            raise PydanticCustomError(
                "range", "expected maxval >= minval, which is {minval}; swap or correct them", {"minval": minval}
            )
        if math.isinf(maxval - minval):
            raise PydanticCustomError("range", "expected maxval - minval to be a number, but it is more than 1.7e308")
        return maxval

    @property
    def limits(self) -> tuple[float, float]:
        """Least and greatest value of a trial."""
        return self.minval, self.maxval

    @property
    def size(self) -> int:
        """Number of points in a grid.

        Raises:
            pydantic_core.PydanticCustomError: ``count`` is missing.
        """
        count, (low, high) = _counted(self), self.limits
        return count if low < high else 1

    def fits(self, value: Any) -> bool:
        """Return whether a trial may have the value, apart from rounding."""
        low, high = self.limits
        slack = 1e-9 * max(abs(low), abs(high))
        return type(value) in (int, float) and low - slack <= value <= high + slack

    def scale(self, value: Any, factor: float) -> Any:
        """Return the product, clipped to the limits."""
        low, high = self.limits
        return min(max(value * factor, low), high)

    def _spread(self, count: int) -> Sequence[float]:
        """Return ``count`` evenly spaced numbers from minval to maxval. A single number is their midpoint."""
        if count == 1:
            return [self.minval + (self.maxval - self.minval) / 2]
        step = (self.maxval - self.minval) / (count - 1)
        return [*(self.minval + place * step for place in range(count - 1)), self.maxval]


class Int(_Range):
    """Integer between minval and maxval, both included."""

    type: Literal["int"]
    """Kind of the hyperparameter."""
    minval: Whole = Field(examples=[32], json_schema_extra={"unit": "as the value"})
    """Least integer."""
    maxval: Whole = Field(examples=[256], json_schema_extra={"unit": "as the value"})
    """Greatest integer, >= minval."""

    @property
    def size(self) -> int:
        return min(_counted(self), self.maxval - self.minval + 1)

    def fits(self, value: Any) -> bool:
        """Return whether a trial may have the value."""
        return type(value) is int and super().fits(value)

    def sample(self, rng: random.Random) -> int:
        """Return a random integer of the range."""
        return rng.randint(self.minval, self.maxval)

    def scale(self, value: Any, factor: float) -> int:
        """Return the product, rounded up if ``factor`` > 1 and down otherwise, and clipped to the range."""
        scaled: int = math.ceil(value * factor) if factor > 1 else math.floor(value * factor)
        return min(max(scaled, self.minval), self.maxval)

    def points(self) -> Sequence[int]:
        """Return ``count`` evenly spaced integers, or the whole range if it is smaller.

        Raises:
            pydantic_core.PydanticCustomError: ``count`` is missing.
        """
        gaps = self.size - 1
        if gaps == 0:
            return [_divide(self.minval + self.maxval, 2)]
        return [_divide(self.minval * (gaps - place) + self.maxval * place, gaps) for place in range(self.size)]


class Double(_Range):
    """Number between minval and maxval, uniformly distributed."""

    type: Literal["double"]
    """Kind of the hyperparameter."""

    def sample(self, rng: random.Random) -> float:
        """Return a random number of the range."""
        return rng.uniform(self.minval, self.maxval)

    def points(self) -> Sequence[float]:
        """Return ``count`` evenly spaced numbers.

        Raises:
            pydantic_core.PydanticCustomError: ``count`` is missing.
        """
        return self._spread(self.size)


class Log(_Range):
    """Power of ``base`` whose exponent is between minval and maxval, uniformly distributed."""

    type: Literal["log"]
    """Kind of the hyperparameter."""
    minval: Number = Field(examples=[-4], json_schema_extra={"unit": "exponent"})
    """Lower limit of the exponent, included."""
    maxval: Number = Field(examples=[-1], json_schema_extra={"unit": "exponent"})
    """Upper limit of the exponent, included, >= minval."""
    base: Annotated[Number, Field(gt=0)] = Field(examples=[10], json_schema_extra={"unit": "factor"})
    """Base of the power, > 0."""

    @field_validator("base")
    @classmethod
    def _has_powers(cls, base: float, info: ValidationInfo) -> float:
        for limit in ("minval", "maxval"):
            exponent = info.data.get(limit, 0.0)
            if not _is_normal_power(base, exponent):
                raise PydanticCustomError(
                    "range",
                    "expected base ** {limit} between 1e-307 and 1e+308, but it is {base} ** {exponent}; minval and "
                    "maxval are exponents, such as -4 and -1",
                    {"limit": limit, "base": base, "exponent": exponent},
                )
        return base

    def sample(self, rng: random.Random) -> float:
        """Return ``base`` to the power of a random exponent."""
        return float(self.base ** rng.uniform(self.minval, self.maxval))

    @property
    def limits(self) -> tuple[float, float]:
        low, high = sorted((float(self.base**self.minval), float(self.base**self.maxval)))
        return low, high

    def points(self) -> Sequence[float]:
        """Return powers of ``base`` with ``count`` evenly spaced exponents.

        Raises:
            pydantic_core.PydanticCustomError: ``count`` is missing.
        """
        return [float(self.base**exponent) for exponent in self._spread(self.size)]


def _is_normal_power(base: float, exponent: float) -> bool:
    try:
        return bool(base**exponent >= sys.float_info.min)
    except OverflowError:
        return False


def _counted(choice: _Range) -> int:
    if choice.count is None:
        raise PydanticCustomError("grid", "expected a `count`, because a grid needs the number of points; add it")
    return choice.count


def _divide(number: int, by: int) -> int:
    """Divide and round to the nearest integer. Halves round away from zero."""
    nearest = (2 * abs(number) + by) // (2 * by)
    return nearest if number >= 0 else -nearest


Choice = Const | Categorical | Int | Double | Log
HyperparameterPath = tuple[str | int, ...]
"""Names that lead to a hyperparameter, and the index of the item of each categorical that contains it."""

_DEFINING = {
    "const": {"val"},
    "categorical": {"vals"},
    "int": {"minval", "maxval"},
    "double": {"minval", "maxval"},
    "log": {"minval", "maxval"},
}
"""Keys by kind. A mapping with the kind as its ``type`` and one of these keys is a definition in an item."""


def json_form(value: Any) -> str:
    """Return a text that differs between values that are equal in Python only, such as 1, 1.0 and true."""
    return json.dumps(value, sort_keys=True, default=BaseModel.model_dump)


def _form(value: Any) -> str:
    if isinstance(value, Mapping):
        return "choice" if "type" in value else "nested"
    return "choice" if isinstance(value, Block) else "literal"


def _option_form(value: Any) -> str:
    if isinstance(value, Block):
        return "choice"
    if not isinstance(value, Mapping):
        return "value"
    kind = value.get("type")
    close = closest_name(kind, _DEFINING) if isinstance(kind, str) else None
    if close and not _DEFINING[close].isdisjoint(value):
        return "choice"  # also if the kind is misspelled, which is an error
    return "nested" if any(_option_form(part) != "value" for part in value.values()) else "value"


def contains_choices(option: Any) -> bool:
    """Return whether a hyperparameter or an item of a categorical is a mapping with hyperparameters in it."""
    return _option_form(option) == "nested"


def _constant(value: Any) -> Const:
    return Const(val=value)


def _named(name: str) -> str:
    if not name:
        raise PydanticCustomError("name", "expected a name such as learning_rate, got an empty one")
    return name


HyperparameterName = Annotated[str, AfterValidator(_named)]

# The JSON schema cannot express the discriminator function, so these equivalents describe its cases.
_NESTED: JsonDict = {"properties": {"type": False}}
_LITERAL = {"type": ["null", "boolean", "number", "string", "array"]}

if TYPE_CHECKING:
    Hyperparameter = Choice | dict[str, Any]
    """Type of a hyperparameter, which is a choice, a nested mapping without the key ``type``, or a bare literal."""
    Option = Any
    """Type of an item of a categorical, which is a choice, a mapping that contains choices, or any other value."""
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
    Option = TypeAliasType(
        "Option",
        Annotated[
            Annotated[Choice, Field(discriminator="type"), Tag("choice")]
            | Annotated[dict[HyperparameterName, "Option"], Tag("nested")]
            | Annotated[Any, Tag("value")],
            Discriminator(_option_form),
            WithJsonSchema({}),
        ],
    )

Categorical.model_rebuild()
_ADAPTER: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[HyperparameterName, Hyperparameter])


def sample_hyperparameters(hyperparameters: Mapping[str, Any], rng: random.Random) -> dict[str, Any]:
    """Sample the values of one random trial.

    Args:
        hyperparameters: ``ExperimentConfig.hyperparameters``, or the same mapping as a config file contains it.
        rng: random number generator. The same state gives the same values.
    """
    return choose_hyperparameters(hyperparameters, lambda _, choice: choice.sample(rng))


def choose_hyperparameters(
    hyperparameters: Mapping[str, Any], choose: Callable[[HyperparameterPath, Any], Any]
) -> dict[str, Any]:
    """Return the values of a trial, each of which a function chooses.

    Args:
        hyperparameters: ``ExperimentConfig.hyperparameters``, or the same mapping as a config file contains it.
        choose: function of the path and the definition of a hyperparameter that returns its value. For a categorical it
            returns the index of an item of ``vals``, whose own hyperparameters are chosen next. The path has the names
            of the nested mappings, and the index of each such item. Calls are in the order of the names.
    """

    def fill(choice: Any, path: HyperparameterPath) -> Any:
        if isinstance(choice, Categorical):
            index = choose(path, choice)
            return fill(choice.vals[index], (*path, index))
        if isinstance(choice, Block):
            return choose(path, choice)
        return fill_all(choice, path) if contains_choices(choice) else choice

    def fill_all(space: Mapping[str, Any], path: HyperparameterPath) -> dict[str, Any]:
        # In order of name, because the order in which a database returns the keys must not change the trial.
        chosen = {name: fill(space[name], (*path, name)) for name in sorted(space)}
        return {name: chosen[name] for name in space}

    return fill_all(space_of(hyperparameters), ())


def match_hyperparameters(
    hyperparameters: Mapping[str, Any], values: Mapping[str, Any]
) -> dict[HyperparameterPath, Any]:
    """Return the value of each hyperparameter of a trial by its path, the inverse of `choose_hyperparameters`.

    The value of a categorical is the index of its item.

    Args:
        hyperparameters: ``ExperimentConfig.hyperparameters``, or the same mapping as a config file contains it.
        values: values of the trial.

    Raises:
        ValueError: the values are not in the space.
    """
    found = _match(space_of(hyperparameters), values, ())
    if found is None:
        raise ValueError(f"expected values of the hyperparameters, got {values!r}")
    return found


def _match(choice: Any, value: Any, path: HyperparameterPath) -> dict[HyperparameterPath, Any] | None:
    if isinstance(choice, Categorical):
        for index, option in enumerate(choice.vals):
            within = _match(option, value, (*path, index))
            if within is not None:
                return {path: index, **within}
        return None
    if isinstance(choice, Const | _Range):
        return {path: value} if choice.fits(value) else None
    if not contains_choices(choice):
        return {} if json_form(choice) == json_form(value) else None
    if not isinstance(value, Mapping) or choice.keys() != value.keys():
        return None
    found: dict[HyperparameterPath, Any] = {}
    for name in choice:
        part = _match(choice[name], value[name], (*path, name))
        if part is None:
            return None
        found |= part
    return found


def space_of(hyperparameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return nested mappings of choices for hyperparameters as a config file contains them."""
    return _ADAPTER.validate_python(hyperparameters)


def example_values(choice: Any) -> Sequence[Any]:
    """Return all values of a hyperparameter, or the lower limit if it is a range, or itself if it is nested."""
    if isinstance(choice, Categorical):
        return [value for option in choice.vals for value in example_values(option)]
    if isinstance(choice, Const):
        return (choice.val,)
    if isinstance(choice, Log):
        return (float(choice.base**choice.minval),)
    return (choice.minval if isinstance(choice, _Range) else choice,)


def numeric_texts(hyperparameters: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each given value that is text and would be a number without its quotes.

    Args:
        hyperparameters: ``ExperimentConfig.hyperparameters``.
        prefix: beginning of the names.
    """
    for name, choice in hyperparameters.items():
        for value in example_values(choice):
            if isinstance(value, Mapping):
                yield from numeric_texts(value, f"{prefix}{name}.")
            elif isinstance(value, str) and isinstance(choice, Const | Categorical) and _NUMBER.fullmatch(value):
                yield prefix + name, value


def explore_hyperparameters(
    hyperparameters: Mapping[str, Any],
    chosen: Mapping[str, Any],
    rng: random.Random,
    *,
    resample_probability: float,
    perturb_factor: float,
) -> dict[str, Any]:
    """Return values near those of another trial, for the explore step of population based training.

    Args:
        hyperparameters: ``ExperimentConfig.hyperparameters``, or the same mapping as a config file contains it.
        chosen: values of the other trial.
        rng: random number generator.
        resample_probability: probability that a value is sampled again, 0 to 1.
        perturb_factor: numbers that are not sampled again are multiplied by ``1 - perturb_factor`` or
            ``1 + perturb_factor``, and clipped to their range.
    """
    factors = (1 - perturb_factor, 1 + perturb_factor)
    before = match_hyperparameters(hyperparameters, chosen)

    def change(path: HyperparameterPath, choice: Any) -> Any:
        if rng.random() < resample_probability or path not in before:
            return choice.sample(rng)
        return choice.scale(before[path], rng.choice(factors))

    return choose_hyperparameters(hyperparameters, change)
