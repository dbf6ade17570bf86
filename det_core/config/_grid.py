"""Grid points of a hyperparameter space."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic_core import PydanticCustomError

from det_core.config._hyperparameters import space_of

_Path = tuple[str, ...]


def grid_points(hyperparameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every combination of the points of all hyperparameters.

    Hyperparameters are ordered by name, and the last one varies fastest. Equal points of a hyperparameter count once.

    Args:
        hyperparameters: ``ExperimentConfig.hyperparameters``, or the same mapping as a config file contains it.

    Raises:
        pydantic_core.PydanticCustomError: a range has no ``count``. The message names the hyperparameter.
    """
    space = space_of(hyperparameters)
    axes = dict(_axes(space))
    order = sorted(axes)
    return [
        _place(space, dict(zip(order, chosen, strict=True)))
        for chosen in itertools.product(*(axes[path] for path in order))
    ]


def grid_axes(hyperparameters: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of points of each hyperparameter. Nested hyperparameters have dotted names.

    Args:
        hyperparameters: ``ExperimentConfig.hyperparameters``, or the same mapping as a config file contains it.

    Raises:
        pydantic_core.PydanticCustomError: a range has no ``count``. The message names the hyperparameter.
    """
    return {".".join(path): len(points) for path, points in _axes(space_of(hyperparameters))}


def _axes(space: Mapping[str, Any], path: _Path = ()) -> Iterator[tuple[_Path, Sequence[Any]]]:
    """Yield the path and the distinct points of each hyperparameter."""
    for name, choice in space.items():
        if isinstance(choice, Mapping):
            yield from _axes(choice, (*path, name))
            continue
        try:
            points = choice.points()
        except PydanticCustomError as error:
            where = ".".join((*path, name))
            problem = {"where": where, "why": error.message()}
            raise PydanticCustomError("grid", "hyperparameters.{where}: {why}", problem) from None
        yield (*path, name), list({json.dumps(point, sort_keys=True): point for point in points}.values())


def _place(space: Mapping[str, Any], chosen: Mapping[_Path, Any], path: _Path = ()) -> dict[str, Any]:
    """Return a mapping of the same nested form as ``space``, with the chosen value of each hyperparameter."""
    return {
        name: _place(choice, chosen, (*path, name)) if isinstance(choice, Mapping) else chosen[(*path, name)]
        for name, choice in space.items()
    }
