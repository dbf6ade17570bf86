"""Rehearsals of an EstimatorTrial. The training graph is another one, so nothing needs to be restored."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any, ClassVar

import pytest
import tensorflow as tf
from det_testing import campaign_seeds
from det_testing.framework.trial_harness import TrialHarness

from det_core.errors import InvalidTrial
from tests.rehearsals import draw_periods, rehearsed_and_plain

from .conftest import CONFIG
from .test_compliance import Tiny, read_tensors
from .test_trial import Line, MakeLaboratory

v1 = tf.compat.v1
SEEDS = campaign_seeds(few=1, many=24)


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


class Everything(Tiny):
    """Trial with all that a rehearsal could disturb, as chosen by ``data`` in the config."""

    def training(self) -> Any:
        return super().training() if self.context.get_data_config()["shuffle"] else self.validation()

    def validation(self) -> Any:
        noisy = super().validation().map(lambda x, y: (x + 0.1 * tf.random.normal([2], seed=4), y))
        return noisy.shuffle(3) if self.context.get_data_config()["shuffle"] else noisy

    def model(self, features: Any, labels: Any, mode: str) -> Any:
        spec = super().model(features, labels, mode)
        if not self.context.get_data_config()["average"]:
            return spec
        average = v1.train.ExponentialMovingAverage(0.9)
        if mode == tf.estimator.ModeKeys.TRAIN:
            with tf.control_dependencies([spec.train_op]):
                return spec._replace(train_op=average.apply(v1.trainable_variables()))
        saver = v1.train.Saver(average.variables_to_restore())
        return spec._replace(scaffold=v1.train.Scaffold(saver=saver))


def config_of(seed: int) -> dict[str, Any]:
    chance = random.Random(seed)
    return {
        **draw_periods(chance),
        "data": {"shuffle": chance.random() < 0.5, "average": chance.random() < 0.5},
    }


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.parametrize("seed", SEEDS)
def test_a_rehearsed_trial_equals_one_without_rehearsal(seed: int, tmp_path: Path) -> None:
    searcher = {"name": "single", "metric": "validation_loss", "max_length": {"batches": 10}}
    harness = TrialHarness(
        tmp_path, "det_estimator._run:run_trial", Everything, {**CONFIG, "searcher": searcher}, read_tensors
    )
    rehearsed, plain = rehearsed_and_plain(harness, config_of(seed))
    assert rehearsed == plain, config_of(seed)
