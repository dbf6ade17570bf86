"""Training that was interrupted ends bitwise like training that was not."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tiny_training import STEPS_PER_EPOCH, Killed, Training
from transformers import EarlyStoppingCallback

from conftest import Trial

LAST = 2 * STEPS_PER_EPOCH
PLATEAU = {"lr_scheduler_type": "reduce_lr_on_plateau", "metric_for_best_model": "loss"}
CASES: dict[str, dict[str, Any]] = {
    "order from global generators": {"train_sampling_strategy": "group_by_length", "save_steps": 2},
    "accumulated gradients": {
        **{"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2},
        **{"eval_strategy": "steps", "eval_steps": 4, "save_steps": 3, "logging_steps": 4},
    },
    "schedule by metrics, all by epoch": {**PLATEAU, "logging_strategy": "epoch", "save_strategy": "epoch"},
    "data workers": {"dataloader_num_workers": 2, "save_steps": 3},
}
SLOW = [pytest.param(case, marks=pytest.mark.slow) for case in list(CASES)[2:]]
QUICK = list(CASES)[:2]


def kill(trial: Trial, arguments: dict[str, Any], steps: Sequence[int]) -> None:
    for step in steps:
        with pytest.raises(Killed):
            trial.run(Training(arguments, kill_at=step))


def finish(trial: Trial, arguments: dict[str, Any]) -> Any:
    trial.run(training := Training(arguments))
    return [training.weights, training.optimizer, trial.metrics("training"), trial.metrics("validation")]


def test_a_process_that_is_killed_after_every_step(make_trial: Callable[..., Trial]) -> None:
    undisturbed, killed = make_trial(), make_trial()
    kill(killed, {}, range(1, LAST))
    assert killed.steps() == list(range(1, LAST))
    assert finish(killed, {}) == finish(undisturbed, {})


@pytest.mark.parametrize("case", [*QUICK, *SLOW])
def test_a_process_that_is_killed_twice_in_an_epoch_and_in_a_later_one(
    make_trial: Callable[..., Trial], case: str
) -> None:
    undisturbed, killed = make_trial(), make_trial()
    kill(killed, CASES[case], [2, 3, STEPS_PER_EPOCH, 6])
    assert finish(killed, CASES[case]) == finish(undisturbed, CASES[case])


@pytest.mark.parametrize("case", SLOW)
def test_a_trial_that_is_asked_to_stop_differs_only_in_the_training_losses(
    make_trial: Callable[..., Trial], case: str
) -> None:
    undisturbed, stopped, arguments = make_trial(), make_trial(), CASES[case]
    stops = [2, STEPS_PER_EPOCH, 7, LAST]
    for step in stops:
        stopped.run(Training(arguments, stop_at=step))
        assert stopped.steps()[-1] == step
    stopped.run(last := Training(arguments))
    undisturbed.run(expected := Training(arguments))
    assert (last.weights, last.optimizer) == (expected.weights, expected.optimizer)
    assert stopped.metrics("validation") == undisturbed.metrics("validation")
    assert {step for step, _ in stopped.metrics("training")} == {
        step for step, _ in undisturbed.metrics("training")
    } | {*stops}


def test_the_best_checkpoint_is_older_than_the_best_evaluation(make_trial: Callable[..., Trial]) -> None:
    arguments = {
        **{"eval_strategy": "steps", "eval_steps": 1, "save_steps": 2, "load_best_model_at_end": True},
        **{"metric_for_best_model": "loss", "greater_is_better": True},  # so that the first step is the best
    }
    undisturbed, killed = make_trial(), make_trial()
    undisturbed.run(expected := Training(arguments))
    with pytest.raises(Killed):
        killed.run(Training(arguments, kill_at=2))
    shutil.rmtree(killed.output)
    killed.run(training := Training(arguments))
    assert training.weights == expected.weights


def test_the_best_model_and_early_stopping_survive(make_trial: Callable[..., Trial]) -> None:
    arguments = {
        **{"save_strategy": "epoch", "load_best_model_at_end": True},
        **{"metric_for_best_model": "loss", "greater_is_better": True},  # so that the first epoch is the best
    }
    trained = []
    for kills in ((), (STEPS_PER_EPOCH, 2 * STEPS_PER_EPOCH)):
        trial = make_trial(max_length={"epochs": 5})
        for step in kills:
            with pytest.raises(Killed):
                trial.run(Training(arguments, kill_at=step, more=[EarlyStoppingCallback(2)]))
            shutil.rmtree(trial.output)
        trial.run(training := Training(arguments, more=[EarlyStoppingCallback(2)]))
        assert trial.steps() == [STEPS_PER_EPOCH, 2 * STEPS_PER_EPOCH, 3 * STEPS_PER_EPOCH]
        training.trainer.evaluate()  # of the best model, at the last step, which has metrics already
        trained.append([training.weights, trial.metrics("validation")])
    assert trained[0] == trained[1]
