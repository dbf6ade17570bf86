"""Grid points of a hyperparameter space."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pydantic_core import PydanticCustomError

from det_core.config._hyperparameters import Categorical, Const, Double, Int, Log, contains_choices, json_form, space_of


def grid_points(hyperparameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every combination of the points of all hyperparameters.

    Hyperparameters are ordered by name, and the last one varies fastest. Equal points of a hyperparameter count once.

    Args:
        hyperparameters: ``ExperimentConfig.hyperparameters``, or the same mapping as a config file contains it.

    Raises:
        pydantic_core.PydanticCustomError: a range has no ``count``. The message names the hyperparameter.
    """
    return _combinations(space_of(hyperparameters), "")


def grid_axes(hyperparameters: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of points of each hyperparameter. Nested hyperparameters have dotted names.

    Those within an item of a categorical belong to the categorical, whose points are all combinations of them.
    Those with the same dotted name, such as ``a.b`` beside ``b`` within ``a``, count together.

    Args:
        hyperparameters: ``ExperimentConfig.hyperparameters``, or the same mapping as a config file contains it.

    Raises:
        pydantic_core.PydanticCustomError: a range has no ``count``. The message names the hyperparameter.
    """
    return _axes(space_of(hyperparameters), "")


def _axes(space: Mapping[str, Any], prefix: str) -> dict[str, int]:
    axes: dict[str, int] = {}
    for name, choice in space.items():
        whole = prefix + name
        nested = isinstance(choice, Mapping)
        for each, count in (_axes(choice, f"{whole}.") if nested else {whole: _count(choice, whole)}).items():
            axes[each] = axes.get(each, 1) * count
    return axes


def _count(choice: Any, name: str) -> int:
    if contains_choices(choice):
        return math.prod(_count(part, f"{name}.{key}") for key, part in choice.items())
    if isinstance(choice, Categorical):
        return sum(_count(option, name) for option in _distinct(choice.vals))
    with _naming_errors(name):
        return choice.size if isinstance(choice, Int | Double | Log) else 1


def _points(choice: Any, name: str) -> Sequence[Any]:
    if contains_choices(choice):
        return _combinations(choice, f"{name}.")
    if isinstance(choice, Categorical):
        return [point for option in _distinct(choice.vals) for point in _points(option, name)]
    return _leaf_points(choice, name)


def _combinations(space: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    order = sorted(space)
    axes = [_points(space[name], prefix + name) for name in order]
    chosen = (dict(zip(order, point, strict=True)) for point in itertools.product(*axes))
    return [{name: point[name] for name in space} for point in chosen]


def _leaf_points(choice: Any, name: str) -> Sequence[Any]:
    """Return the points of a range or a constant, or a plain value itself."""
    with _naming_errors(name):
        return _distinct(choice.points()) if isinstance(choice, Const | Int | Double | Log) else [choice]


@contextmanager
def _naming_errors(name: str) -> Iterator[None]:
    try:
        yield
    except PydanticCustomError as error:
        problem = {"where": name, "why": error.message()}
        raise PydanticCustomError("grid", "hyperparameters.{where}: {why}", problem) from None


def _distinct(values: Iterable[Any]) -> list[Any]:
    return list({json_form(one): one for one in values}.values())
