"""Hyperparameters of trials as columns of tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from det_core.interfaces.records import LONGEST_BRIEF, Shortened, TrialRecord
from det_core.text import flatten_mapping, mask_references, varying_names
from det_server.pages._list_values import has_numbers

MOST_COLUMNS = 20
"""Maximum number of hyperparameters in a table."""
_LONGEST_NAME = 200
"""Maximum number of characters of the names of values of many records. Nested ones repeat those around them."""
_MOST_COMPARED = 100_000
"""Number of hyperparameters of all trials together after which those of other trials are not compared."""


def hyperparameter_columns(trials: Iterable[TrialRecord]) -> dict[str, bool]:
    """Return the names of the hyperparameters that differ between trials, each with whether its values are numbers.

    If none differs, these are all names. Those that a table has no room for are left out.
    """
    each = list(_compared(trials))
    return {name: has_numbers(name, each) for name in varying_names(each)[:MOST_COLUMNS]}


def _compared(trials: Iterable[TrialRecord]) -> Iterator[dict[str, Any]]:
    """Yield the hyperparameters of the first trials."""
    left = _MOST_COMPARED
    for trial in trials:
        flat = values_with_short_names(trial.hparams)
        left -= len(flat)
        if left < 0:
            return
        yield flat


def name_left_out(trials: Iterable[TrialRecord]) -> str:
    """Return a sentence about the trials whose hyperparameters are too large for a list, or ""."""
    ids = ", ".join(str(trial.id) for trial in trials if isinstance(trial.hparams, Shortened))
    return f"Hyperparameters of more than {LONGEST_BRIEF >> 10} KiB are left out: trials {ids}." if ids else ""


def hyperparameter_values(trial: TrialRecord) -> dict[str, Any]:
    """Return the hyperparameters of a trial by names such as ``optimizer.lr``, with secrets masked."""
    return _masked(flatten_mapping(trial.hparams))


def listed_values(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hyperparameters of a trial, or a config, as it is shown beside others, with secrets masked."""
    return _masked(values_with_short_names(record))


def values_with_short_names(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested values by names such as ``optimizer.lr``, without those whose names are too long for a list."""
    return {name: value for name, value in flatten_mapping(record).items() if len(name) <= _LONGEST_NAME}


def _masked(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: mask_references(value) if isinstance(value, str) else value for name, value in values.items()}
