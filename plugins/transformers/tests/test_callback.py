"""What the callback reports, stores, decides and refuses."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from det_testing.comparison import bitwise_form
from tiny_training import MODEL, STEPS_PER_EPOCH, Killed, Training, records
from transformers import AutoModelForCausalLM, EarlyStoppingCallback, GPT2LMHeadModel

from conftest import Trial
from det_core import core, get_cluster_info
from det_core.core import SearcherOperation
from det_core.core.checkpoint_removal import remove_checkpoint
from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore

LAST = 2 * STEPS_PER_EPOCH
BEST = {  # which is the first, because the loss falls
    **{"save_strategy": "epoch", "metric_for_best_model": "loss", "greater_is_better": True},
    "load_best_model_at_end": True,
}
SELDOM = {"save_steps": 3, "logging_steps": 2}


def test_metrics_and_checkpoints_have_the_steps_of_the_trainer(make_trial: Callable[..., Trial]) -> None:
    trial, training = make_trial(max_length={"epochs": 2}), Training(SELDOM)
    trial.run(training)
    assert [step for step, _ in trial.metrics("training")] == [2, 3, 4, 6, 8]
    assert trial.metrics("training")[0][1].keys() == {"loss", "grad_norm", "learning_rate", "epoch"}
    assert [(step, metrics.keys()) for step, metrics in trial.metrics("validation")] == [
        (step, {"eval_loss", "epoch"}) for step in (4, 8)
    ]
    assert trial.steps() == [3, 6, 8]
    loaded = AutoModelForCausalLM.from_pretrained(trial.latest())
    assert bitwise_form(loaded.state_dict()) == training.weights


def test_the_length_of_the_config_replaces_that_of_the_arguments(make_trial: Callable[..., Trial]) -> None:
    trial, training = make_trial(max_length={"batches": 7}), Training({"num_train_epochs": 1, **SELDOM})
    trial.run(training)
    assert (training.trainer.state.max_steps, training.trainer.state.global_step) == (7, 7)
    assert trial.steps() == [3, 6, 7]
    operation = trial.store.searcher_operation(trial.id)
    assert operation and operation.completed
    assert operation.metric == trial.metrics("validation")[-1][1]["eval_loss"]


@pytest.mark.parametrize("max_length", [{"epochs": 2}, {"batches": 7}])
def test_a_process_that_is_killed_before_it_reports_the_end_trains_no_further_step(
    make_trial: Callable[..., Trial], max_length: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any) -> None:
        raise Killed

    arguments = {**BEST, "lr_scheduler_type": "constant"}
    trial, killed, training = make_trial(max_length=max_length), Training(arguments), Training(arguments)
    with monkeypatch.context() as patch:
        patch.setattr(SearcherOperation, "report_completed", die)
        with pytest.raises(Killed):
            trial.run(killed)
    trial.run(training)
    operation = trial.store.searcher_operation(trial.id)
    assert operation and operation.completed
    assert training.optimizer == killed.optimizer
    training.trainer.evaluate()  # of the best model, at a step whose metrics are known


@pytest.mark.parametrize(("unit", "rungs"), [("epochs", (1, 2)), ("batches", (3, 7))])
def test_a_rung_stops_the_trial_and_keeps_the_schedule_of_the_longest(
    make_trial: Callable[..., Trial], unit: str, rungs: tuple[int, int]
) -> None:
    arguments = {"eval_strategy": "steps", "eval_steps": 1, "logging_steps": 1, "save_steps": 4}
    straight, halted = (make_trial(max_length={unit: rungs[1]}) for _ in range(2))
    for length in rungs:
        halted.request(length)
        halted.run(training := Training(arguments))
        operation = halted.store.searcher_operation(halted.id)
        assert operation and operation.completed
    straight.run(expected := Training(arguments))
    assert training.weights == expected.weights
    assert halted.metrics("validation")[-1] == straight.metrics("validation")[-1]


def test_a_trial_that_stops_itself_says_so(make_trial: Callable[..., Trial]) -> None:
    trial = make_trial(max_length={"epochs": 3})
    trial.run(Training(BEST, more=[EarlyStoppingCallback(1)]))
    assert trial.steps()[-1] == LAST
    assert trial.store.runs(trial.id)[-1].early_exit == core.EarlyExitReason.USER_REQUESTED_STOP


def test_user_data_and_a_selection_of_metrics(make_trial: Callable[..., Trial]) -> None:
    trial = make_trial(max_length={"epochs": 1})
    trial.run(Training(SELDOM, callback={"filter_metrics": ["loss"], "user_data": {"a": 1}}))
    assert json.loads((trial.latest() / "my_data.json").read_text()) == {"a": 1}
    assert {
        name for group in ("training", "validation") for _, metrics in trial.metrics(group) for name in metrics
    } == {*("loss", "eval_loss")}


@pytest.mark.parametrize(
    ("arguments", "searcher", "message"),
    [
        ({"save_only_model": True}, {}, "pass save_only_model=False"),
        ({}, {"max_length": {"records": 40}}, "max_length is in records"),
        ({}, {"metric": "accuracy"}, "'accuracy', but the Trainer has logged epoch, eval_loss, .* at step 8; write"),
    ],
)
def test_errors_say_what_to_write(
    make_trial: Callable[..., Trial], arguments: dict[str, Any], searcher: dict[str, Any], message: str
) -> None:
    trial = make_trial(**searcher)
    with pytest.raises(ValueError, match=message):
        trial.run(Training({"save_steps": LAST, **arguments}))


def test_a_trainer_that_does_not_resume_is_an_error(make_trial: Callable[..., Trial]) -> None:
    trial = make_trial()
    with pytest.raises(Killed):
        trial.run(Training(kill_at=1))
    with pytest.raises(RuntimeError, match=r"begins at step 0, .* checkpoint of step 1; call trainer.train\(resume"):
        trial.run(Training(resumes=False))


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true:UserWarning")
def test_the_script_of_the_page_trains_by_itself(store: TrackingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DET_INFO_DIR")
    get_cluster_info.cache_clear()
    rows = [{**row, "input_ids": row["input_ids"][:3], "labels": row["labels"][:3]} for row in records(8)]
    page = Path(__file__).parents[1] / "README.md"
    (script,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    exec(script, {"model": GPT2LMHeadModel(MODEL), "training": rows, "validation": rows})
    assert [row.steps_completed for row in store.checkpoints(trial_id=1)] == [3]
    assert store.experiment(1).state is State.COMPLETED


def test_a_trial_whose_best_checkpoint_was_removed_resumes(
    make_trial: Callable[..., Trial], caplog: pytest.LogCaptureFixture
) -> None:
    trial, training = make_trial(max_length={"epochs": 4}), Training(BEST)
    with pytest.raises(Killed):
        trial.run(Training(BEST, kill_at=LAST))
    best = trial.store.checkpoints(trial_id=trial.id)[0]
    remove_checkpoint(trial.store, best, chosen=True, on_deleted=lambda _: None)
    shutil.rmtree(trial.output)
    with pytest.raises(Killed):
        trial.run(Training(BEST, kill_at=3 * STEPS_PER_EPOCH))
    shutil.rmtree(trial.output)
    trial.run(training)
    assert caplog.text.count(f"best checkpoint so far, {best.uuid} of step {STEPS_PER_EPOCH}, was removed") == 1
    assert trial.steps()[-1] == 4 * STEPS_PER_EPOCH
    assert bitwise_form(AutoModelForCausalLM.from_pretrained(trial.latest()).state_dict()) == training.weights
