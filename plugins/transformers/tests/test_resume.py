"""Training that was interrupted ends bitwise like training that was not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from conftest import Trial
from tiny_training import STEPS_PER_EPOCH, Killed, Training

from det_core.testing.comparison import bitwise_form

LAST = 3 * STEPS_PER_EPOCH
BY_STEPS = {"eval_strategy": "steps", "eval_steps": 4, "save_steps": 3, "logging_steps": 4}
BY_EPOCH = {"logging_strategy": "epoch", "save_strategy": "epoch"}
CASES = {
    "every step": {},
    "evaluation by steps": BY_STEPS,
    "by epoch": BY_EPOCH,
    "order from global numbers": {"train_sampling_strategy": "group_by_length", "save_steps": 2},
    "accumulation": {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "save_steps": 2},
    "plateau": {"lr_scheduler_type": "reduce_lr_on_plateau", "metric_for_best_model": "loss", "save_steps": 2},
    "best": {"load_best_model_at_end": True, "save_strategy": "epoch", "metric_for_best_model": "loss", "greater_is_better": True},
    "data workers": {"dataloader_num_workers": 2, "save_steps": 3},
}


def finished(trial: Trial, arguments: dict[str, Any]) -> Any:
    training = Training(arguments)
    trial.run(training)
    return bitwise_form([training.result, trial.metrics("training"), trial.metrics("validation")])


@pytest.mark.parametrize("case", CASES)
def test_a_process_that_is_killed_after_every_step(make_trial: Callable[..., Trial], case: str) -> None:
    arguments = CASES[case]
    undisturbed, killed = make_trial(), make_trial()
    step = 0
    for step in [3, 4, 7, 9, 13] if case != "every step" else range(1, LAST):
        with pytest.raises(Killed):
            killed.run(Training(arguments, kill_at=step))
    assert finished(killed, arguments) == finished(undisturbed, arguments)

@pytest.mark.parametrize("case", CASES)
def test_stops(make_trial: Callable[..., Trial], case: str) -> None:
    arguments = CASES[case]
    undisturbed, killed = make_trial(), make_trial()
    step = 0
    for step in [3, 4, 5, 9, 10, 12, 15]:
        killed.run(Training(arguments, stop_at=step))
        assert killed.steps()[-1] == step
    a, b = Training(arguments), Training(arguments)
    killed.run(a)
    undisturbed.run(b)
    ra, rb = a.result, b.result
    log = [e for e in ra.pop("log") if "loss" not in e], [e for e in rb.pop("log") if "loss" not in e]
    assert log[0] == log[1]
    assert bitwise_form([ra, killed.metrics("validation")]) == bitwise_form([rb, undisturbed.metrics("validation")])
