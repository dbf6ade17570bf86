"""Records as pandas data frames."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from det_core.errors import DetError
from det_core.extras import explain_missing_extra, has_extra
from det_core.interfaces.tracking import TrackingStore

if TYPE_CHECKING:
    from pandas import DataFrame

_REPORT = ("trial_id", "run_id", "group", "steps_completed", "time")
"""Columns of a report, followed by those of its metrics."""


def make_metrics_frame(store: TrackingStore, trial_ids: Iterable[int], group: str | None) -> DataFrame:
    """Return the reports of trials with a row per report and a column per metric.

    Args:
        store: the tracking store.
        trial_ids: ids of the trials.
        group: include only reports of this group. None for all.

    Raises:
        DetError: pandas is not installed.
    """
    pandas = _import_pandas()
    rows = [
        {name: getattr(report, name) for name in _REPORT}
        | {f"metrics.{name}" if name in _REPORT else name: value for name, value in report.metrics.items()}
        for trial_id in trial_ids
        for report in store.metrics(trial_id, group=group)
    ]
    return pandas.DataFrame(rows, columns=None if rows else _REPORT)


def make_trials_frame(store: TrackingStore, experiment_id: int) -> DataFrame:
    """Return the trials of an experiment with a row per trial, indexed by trial id.

    Args:
        store: the tracking store.
        experiment_id: the experiment.

    Raises:
        DetError: pandas is not installed.
    """
    pandas = _import_pandas()
    rows = [
        {
            "trial_id": result.trial.id,
            "state": result.trial.state.value,
            "hparams": dict(result.trial.hparams),
            "best": result.best.value if result.best else None,
            "best_at": result.best.steps_completed if result.best else None,
            "latest": result.latest.value if result.latest else None,
            "steps_completed": result.trial.steps_completed,
            "restarts": result.trial.restarts,
            "start_time": result.trial.start_time,
            "end_time": result.trial.end_time,
        }
        for result in store.trial_results(experiment_id)
    ]
    frame = pandas.json_normalize(rows) if rows else pandas.DataFrame(columns=["trial_id"])
    return frame.set_index("trial_id")


def _import_pandas() -> Any:
    if not has_extra("pandas"):
        raise DetError(explain_missing_extra("pandas"))
    import pandas

    return pandas
