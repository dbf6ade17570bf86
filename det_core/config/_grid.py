"""Hyperparameters as the points of a grid."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic_core import PydanticCustomError

from det_core.config._hyperparameters import space_of

_Path = tuple[str, ...]


def grid_points(hyperparameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every combination of the points of each hyperparameter; the last by name varies fastest.

    Equal points of a hyperparameter count once.

    Args:
        hyperparameters: as of `sample_hyperparameters`.

    Raises:
        pydantic_core.PydanticCustomError: a range has no ``count``; names it.
    """
    space = space_of(hyperparameters)
    axes = dict(_axes(space))
    order = sorted(axes)
    return [
        _place(space, dict(zip(order, chosen, strict=True)))
        for chosen in itertools.product(*(axes[path] for path in order))
    ]


def grid_axes(hyperparameters: Mapping[str, Any]) -> dict[str, int]:
    """How many points each hyperparameter has, nested ones by dotted name. Raises as `grid_points`."""
    return {".".join(path): len(points) for path, points in _axes(space_of(hyperparameters))}


def _axes(space: Mapping[str, Any], path: _Path = ()) -> Iterator[tuple[_Path, Sequence[Any]]]:
    """Each hyperparameter's path, and its points."""
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
    """The values by path as a mapping of the space's form."""
    return {
        name: _place(choice, chosen, (*path, name)) if isinstance(choice, Mapping) else chosen[(*path, name)]
        for name, choice in space.items()
    }
