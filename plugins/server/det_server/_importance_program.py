"""Program that measures how much the result of trials depends on each hyperparameter.

It reads a table as JSON from standard input, and writes an `Importance` to standard output.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

import numpy as np
from sklearn.ensemble import RandomForestRegressor
from sklearn.inspection import permutation_importance
from sklearn.model_selection import KFold

_FOLDS, _TREES, _REPEATS = 5, 60, 5


def measure_importance(columns: Sequence[Sequence[float | None]], values: Sequence[float]) -> dict[str, object]:
    """Return how much the order of trials depends on each column.

    Forests learn the rank of the value from four fifths of the trials, and predict that of the others. The importance
    of a column is how much worse they predict if its values are exchanged between these trials.

    Args:
        columns: values of each hyperparameter by trial, or None where a trial has none.
        values: value of the metric by trial, at least 10.

    Returns:
        ``explained``: share of the variance of ranks that the forests predict, at most 1. ``shares``: importance of
        each column, as shares of their sum. ``errors``: standard deviations of these shares over the folds.
    """
    table = np.array(columns, float).T  # None becomes NaN
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable") / len(values)
    losses, found = [], []
    for number, (seen, unseen) in enumerate(KFold(_FOLDS, shuffle=True, random_state=0).split(table)):
        forest = RandomForestRegressor(_TREES, min_samples_leaf=2, random_state=number).fit(table[seen], ranks[seen])
        losses.append((forest.predict(table[unseen]) - ranks[unseen]) ** 2)
        found.append(
            permutation_importance(
                forest,
                table[unseen],
                ranks[unseen],
                scoring="neg_mean_squared_error",
                n_repeats=_REPEATS,
                random_state=number,
            ).importances_mean
        )
    importances = np.maximum(np.mean(found, axis=0), 0)
    total = importances.sum() or 1.0
    return {
        "explained": float(1 - np.concatenate(losses).mean() / ranks.var()),
        "shares": (importances / total).tolist(),
        "errors": (np.std(found, axis=0) / total).tolist(),
    }


if __name__ == "__main__":
    os.nice(10)  # the server and trials on its machine come first
    json.dump(measure_importance(**json.load(sys.stdin)), sys.stdout)
