"""Hyperparameters of trials as columns of tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from det_core.interfaces.records import TrialRecord
from det_core.text import flatten_mapping, mask_references, varying_hyperparameters

MOST_COLUMNS = 20
"""Maximum number of hyperparameters in a table."""
_LONGEST_NAME = 200
"""Maximum number of characters of their names, which a table has in each row."""


def hyperparameter_columns(trials: Iterable[TrialRecord]) -> list[str]:
    """Return the names of the hyperparameters that differ between trials, or of all if none differs.

    Those that a table has no room for are left out.
    """
    return [name for name in varying_hyperparameters(trials) if len(name) <= _LONGEST_NAME][:MOST_COLUMNS]


def hyperparameter_values(trial: TrialRecord) -> dict[str, Any]:
    """Return the hyperparameters of a trial by names such as ``optimizer.lr``, with secrets masked."""
    flat = flatten_mapping(trial.hparams)
    return {name: mask_references(value) if isinstance(value, str) else value for name, value in flat.items()}


def sort_by_hyperparameter(trials: Sequence[Any], name: str, reverse: bool) -> list[Any]:
    """Sort objects with a ``trial`` by one of its hyperparameters, numbers before text. Trials without it come last.

    Args:
        trials: the objects.
        name: name of the hyperparameter.
        reverse: whether the greatest value comes first.
    """
    values = [(flatten_mapping(one.trial.hparams).get(name), one) for one in trials]
    present = [pair for pair in values if pair[0] is not None]
    present.sort(key=lambda pair: _sort_key(pair[0]), reverse=reverse)
    return [one for _, one in present] + [one for value, one in values if value is None]


def _sort_key(value: object) -> tuple[int, float, str]:
    return (0, float(value), "") if isinstance(value, int | float) else (1, 0.0, str(value))
