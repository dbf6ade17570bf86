"""Rehearsals of an EstimatorTrial. The training graph is another one, so nothing needs to be restored."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, ClassVar

import pytest
import tensorflow as tf

from det_core.errors import InvalidTrial

from .test_trial import Line, MakeLaboratory

v1 = tf.compat.v1


class Seen(v1.train.SessionRunHook):
    calls: ClassVar[list[str]] = []

    def begin(self) -> None:
        self.calls.append("begin")


class Watched(Line):
    def build_validation_spec(self) -> Any:
        return tf.estimator.EvalSpec(self.data, hooks=[Seen()])

    def model(self, features: Any, labels: Any, mode: str, params: Any) -> Any:
        spec = super().model(features, labels, mode, params)
        return spec._replace(evaluation_hooks=[Seen()]) if mode == tf.estimator.ModeKeys.EVAL else spec


def test_hooks_do_not_notice_and_no_summary_is_written(make_laboratory: MakeLaboratory, tmp_path: Path) -> None:
    Seen.calls.clear()
    harness = make_laboratory(Watched)
    wrong = {"name": "single", "metric": "los", "max_length": {"batches": 3}}
    with pytest.raises(InvalidTrial, match=r"metric is 'los', but .* did you mean 'loss'"):
        harness.train(harness.prepare(rehearsal=True, searcher=wrong))
    assert not Seen.calls
    assert not [path for path in tmp_path.rglob("*tfevents*") if "eval" in str(path)]


class Buggy(Line):
    evaluations = 0

    def model(self, features: Any, labels: Any, mode: str, params: Any) -> Any:
        if mode == tf.estimator.ModeKeys.EVAL:
            self.evaluations += 1
            if self.evaluations == 1:
                raise ValueError("a bug of the user")
        return super().model(features, labels, mode, params)


def test_an_exception_of_the_evaluation_is_one_warning(
    make_laboratory: MakeLaboratory, caplog: pytest.LogCaptureFixture
) -> None:
    harness = make_laboratory(Buggy)
    trial_id = harness.prepare(rehearsal=True, length={"batches": 3})
    harness.train(trial_id)
    assert harness.store.trial(trial_id).steps_completed == 3
    warnings = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert ["could not evaluate a batch" in warning for warning in warnings if "a bug" in warning] == [True]
