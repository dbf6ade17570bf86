"""Losses and metrics that are NaN, in the summaries of experiments and scripts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import det_core as det
from det_core.cli.render.experiment_summary import summarize_experiment, summary_lines
from det_core.core import Context
from det_core.core.non_finite_metrics import find_non_finite_metrics
from det_core.tracking import open_store

NAN, INF = math.nan, math.inf


def report(core: Context, reports: Sequence[Sequence[Any]], *, whole: bool) -> None:
    """Report the losses of each period, also of each batch if ``whole``."""
    batch = 0
    for losses in reports:
        batch += len(losses)
        rows = [{"loss": loss} for loss in losses] if whole else None
        core.train.report_training_metrics(batch, {"loss": sum(losses) / len(losses)}, rows)
    core.train.flush()


@pytest.mark.parametrize(
    ("reports", "whole", "found"),
    [
        ([[1.0, 2.0], [3.0, 1.0]], True, []),
        ([[1.0, NAN], [3.0, 1.0]], True, []),
        ([[1.0, 2.0], [3.0, NAN]], True, []),
        ([[1.0, 2.0], [NAN, 1.0], [NAN, NAN]], True, ["loss is NaN since batch 5"]),
        ([[1.0, 2.0], [3.0, NAN], [INF, NAN], [NAN, NAN]], True, ["loss is NaN since batch 4"]),
        ([[INF, INF]], True, ["loss is infinite since batch 1"]),
        ([[1.0] * 700, [1.0] * 499 + [NAN], [NAN]], True, ["loss is NaN since batch 1,200"]),
        ([[1.0, 2.0], [NAN, NAN]], False, ["loss is NaN since batch 4"]),
    ],
)
def test_a_loss_that_stays_nan_for_a_report_is_found(
    det_home: Path, reports: Sequence[Sequence[float]], whole: bool, found: list[str]
) -> None:
    with det.core.init() as core:
        report(core, reports, whole=whole)
        trials = [core._store.trial(core.trial.trial_id)]
        assert [str(one) for one in find_non_finite_metrics(core._store, trials, "validation_loss")] == found


def save(core: Context, batch: int) -> str:
    with core.checkpoint.store_path({"steps_completed": batch}) as (path, storage_id):
        (path / "weights").touch()
    return storage_id


def test_no_summary_offers_weights_from_after_the_loss_became_nan(
    det_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = {"searcher": {"metric": "accuracy"}}  # the NaN model has the smallest accuracy, which is finite
    with det.core.init(config=config) as core:
        report(core, [[1.0, 2.0], [NAN, NAN]], whole=True)
        for batch, accuracy in ((2, 0.5), (4, 0.1)):
            core.train.report_validation_metrics(batch, {"accuracy": accuracy})
        good, bad = save(core, 2), save(core, 4)
    with open_store() as store:
        lines = list(summary_lines(summarize_experiment(store, core.trial.experiment_id)))
    for shown in ("\n".join(lines), capfd.readouterr().err):
        assert "loss is NaN since batch 3" in shown
        assert good in shown
        assert bad not in shown


@pytest.mark.parametrize("stops", [False, True])
def test_a_searcher_metric_that_is_nan_is_in_the_summary_and_no_checkpoint_with_it(det_home: Path, stops: bool) -> None:
    with det.core.init(config={"stop_on_nan": stops}) as core:
        core.train.report_validation_metrics(4, {"validation_loss": NAN})
        bad = save(core, 4)
    with open_store() as store:
        lines = list(summary_lines(summarize_experiment(store, core.trial.experiment_id)))
    assert "  validation_loss is NaN since batch 4 of trial 1" in lines
    assert not [line for line in lines if bad in line]
    assert any("--config stop_on_nan=true" in line for line in lines) is not stops
