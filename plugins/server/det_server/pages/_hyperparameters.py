"""Hyperparameters of trials as columns of tables."""

from __future__ import annotations

from collections.abc import Iterable
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
