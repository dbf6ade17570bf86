"""Further training of experiments that have ended, with trials as real processes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from det_testing.comparison import bitwise_form

from det_core.cli import main
from det_core.core import open_storage_block
from det_core.errors import ConfigError, DetError, ExperimentBusy, InvalidExperimentException, RecordNotFound
from det_core.interfaces.framework import SCHEDULE_END
from det_core.interfaces.records import CodeVersion, ExperimentRecord, State, TrialUpdate
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import continue_experiment, fork_experiment
from det_core.tracking._lease import Lease

from .conftest import Submit
from .experiment_runs import run

Saved = Callable[..., ExperimentRecord]

LONGER = "searcher.max_length={batches: 100}"


def length(batches: int, name: str = "single", **options: Any) -> dict[str, Any]:
    return {"name": name, "metric": "validation_loss", "max_length": {"batches": batches}, **options}


def outcome(store: TrackingStore, trial_id: int) -> Any:
    """Return everything that training determines: reports without their times, and the state in the last checkpoint."""
    last = store.checkpoints(trial_id=trial_id)[-1]
    directory = open_storage_block(last.storage).local_path(last.uuid)
    assert directory
    reports = [(one.group, one.steps_completed, one.metrics) for one in store.metrics(trial_id)]
    return bitwise_form(
        (sorted(reports, key=str), last.steps_completed, json.loads((directory / "toy.json").read_text()))
    )


@pytest.mark.integration
@pytest.mark.parametrize("search", [{"name": "single"}, {"name": "random", "max_trials": 2}])
def test_a_continued_trial_equals_an_undisturbed_one(
    store: TrackingStore, new_experiment: Submit, search: dict[str, Any]
) -> None:
    period = {"min_validation_period": {"batches": 25}}
    undisturbed, continued = (new_experiment(searcher=length(n, **search), **period) for n in (100, 50))
    assert run(store, undisturbed) is run(store, continued) is State.COMPLETED
    changed = continue_experiment(store, continued.id, [LONGER])
    assert (changed.state, changed.config["searcher"]["max_length"]) == (State.PAUSED, {"batches": 100})
    assert changed.original_config.startswith(f"# --config {LONGER}\n")
    assert run(store, continued) is State.COMPLETED
    pairs = list(zip(store.trials(undisturbed.id), store.trials(continued.id), strict=True))
    assert [(one.run_id, other.run_id) for one, other in pairs] == [(1, 2)] * len(pairs)
    for one, other in pairs:
        assert outcome(store, one.id) == outcome(store, other.id)
        assert other.progress == 1


@pytest.mark.integration
def test_a_failed_trial_continues_from_its_checkpoint(
    store: TrackingStore, new_experiment: Submit, tmp_path: Path
) -> None:
    mark = tmp_path / "repaired"
    failing = f"def on_batch(self, batch):\n    if batch == 35 and not Path({str(mark)!r}).exists(): raise ValueError"
    keys = {"searcher": length(50), "min_checkpoint_period": {"batches": 10}}
    undisturbed = new_experiment(**keys)
    experiment = new_experiment(failing, max_restarts=0, **keys)
    assert (run(store, undisturbed), run(store, experiment)) == (State.COMPLETED, State.ERROR)
    mark.touch()
    continue_experiment(store, experiment.id, ["max_restarts=1"])
    assert run(store, experiment) is State.COMPLETED
    [one], [other] = store.trials(undisturbed.id), store.trials(experiment.id)
    assert (other.state, other.run_id, other.restarts) == (State.COMPLETED, 2, 0)
    assert outcome(store, one.id) == outcome(store, other.id)


@pytest.mark.integration
def test_an_extension_that_failed_can_be_undone(store: TrackingStore, new_experiment: Submit) -> None:
    failing = "def on_batch(self, batch):\n    if batch == 65: raise ValueError"
    keys = {"searcher": length(50), "min_validation_period": {"batches": 10}}
    undisturbed, experiment = new_experiment(**keys), new_experiment(failing, max_restarts=0, **keys)
    assert run(store, undisturbed) is run(store, experiment) is State.COMPLETED
    continue_experiment(store, experiment.id, [LONGER])
    assert run(store, experiment) is State.ERROR
    with pytest.raises(InvalidExperimentException, match="is 100, and 40 is less"):
        continue_experiment(store, experiment.id, ["searcher.max_length={batches: 40}"])
    continue_experiment(store, experiment.id, ["searcher.max_length={batches: 50}"])
    assert run(store, experiment) is State.COMPLETED
    [one], [other] = store.trials(undisturbed.id), store.trials(experiment.id)
    assert outcome(store, one.id) == outcome(store, other.id)
    assert other.progress == 1


def test_only_an_extension_without_a_checkpoint_can_be_undone(store: TrackingStore, saved: Saved) -> None:
    experiment = saved(State.ERROR)
    store.end_run(1, 1, reason="it failed")
    with pytest.raises(InvalidExperimentException, match="to undo an extension that saved no checkpoint"):
        continue_experiment(store, experiment.id, ["searcher.max_length={batches: 30}"])


@pytest.mark.parametrize("unit", ["batches", "records", "epochs"])
def test_a_length_below_the_checkpoint_is_refused_in_each_unit(store: TrackingStore, saved: Saved, unit: str) -> None:
    """The checkpoint is that of batch 3 of 7, and a batch has two records. The extension fails before it trains."""
    each = {"batches": 1, "records": 2, "epochs": 1}[unit]
    experiment = saved(State.COMPLETED, max_length={unit: 5 * each})
    order = TrialUpdate(request_id=0, state=State.COMPLETED, length=5 * each)
    store.record_search(experiment.id, [], [order])
    store.set_trial_total(1, 1, 5)
    continue_experiment(store, experiment.id, [f"searcher.max_length={{{unit}: {7 * each}}}"])
    (trial,) = store.record_search(experiment.id, [], [replace(order, state=State.ERROR, length=7 * each)])
    store.set_experiment_state(experiment.id, State.ERROR)
    assert trial.total_batches == 7
    with pytest.raises(InvalidExperimentException, match=f"and {2 * each} is less"):
        continue_experiment(store, experiment.id, [f"searcher.max_length={{{unit}: {2 * each}}}"])
    continue_experiment(store, experiment.id, [f"searcher.max_length={{{unit}: {3 * each}}}"])


@pytest.mark.parametrize(
    ("end", "longer", "named"), [(40, 50, True), (60, 50, False), (40, 40, False), (None, 50, False)]
)
def test_a_schedule_that_ends_is_named_before_training(
    store: TrackingStore, saved: Saved, caplog: pytest.LogCaptureFixture, end: int | None, longer: int, named: bool
) -> None:
    experiment = saved(State.CANCELED)
    store.edit_checkpoint_metadata("1-3", add={SCHEDULE_END: end})
    continue_experiment(store, experiment.id, [f"searcher.max_length={{batches: {longer}}}"])
    assert (f"a schedule of trial 1, such as that of its learning rate, ends after {end}" in caplog.text) is named


@pytest.mark.integration
def test_a_fork_starts_from_the_checkpoint_with_the_changed_config(
    store: TrackingStore, new_experiment: Submit, context_dir: Path
) -> None:
    """Both have the commit of the code, and each run the machine on which it trained."""
    repository = context_dir / ".git"
    (repository / "refs").mkdir(parents=True)
    (repository / "HEAD").write_text("a" * 40)
    rate = {"rate": {"type": "double", "minval": 0, "maxval": 1}, "other": 2}
    origin = new_experiment(searcher=length(20, "random", max_trials=1), hyperparameters=rate)
    assert run(store, origin) is State.COMPLETED
    [trial], [*_, last] = store.trials(origin.id), store.checkpoints(experiment_id=origin.id)
    fork = fork_experiment(store, origin.id, last.uuid, ["hyperparameters.other=3", "searcher.max_length={batches: 5}"])
    assert fork.id != origin.id
    assert fork.original_config.startswith(f"# from checkpoint {last.uuid} of experiment {origin.id}\n")
    assert run(store, fork) is State.COMPLETED
    [forked] = store.trials(fork.id)
    assert forked.hparams == {"rate": trial.hparams["rate"], "other": 3}
    assert forked.steps_completed == 5
    before, after = (bitwise_form(store.trial(one.id).hparams["rate"]) for one in (trial, forked))
    assert before == after
    assert any("starts from checkpoint " + last.uuid in line.log for line in store.logs(forked.id))
    assert store.experiment(origin.id).config == origin.config
    assert set(store.code_versions([origin.id, fork.id]).values()) == {CodeVersion(commit="a" * 40)}
    assert [one.host for one in store.newest_machines([trial.id, forked.id]).values()] == [os.uname().nodename] * 2


@pytest.mark.integration
def test_a_damaged_source_of_a_fork_is_named(store: TrackingStore, new_experiment: Submit) -> None:
    origin = new_experiment(searcher=length(10))
    assert run(store, origin) is State.COMPLETED
    [*_, last] = store.checkpoints(experiment_id=origin.id)
    directory = open_storage_block(last.storage).local_path(last.uuid)
    assert directory
    (directory / "toy.json").write_text("{}")
    fork = fork_experiment(store, origin.id, last.uuid, [])
    assert run(store, fork) is State.ERROR
    assert last.uuid in (store.experiment(fork.id).error or "")
    with pytest.raises(InvalidExperimentException, match="ERROR"):
        fork_experiment(store, origin.id, last.uuid, [])


@pytest.mark.parametrize(
    ("searcher", "changes", "message"),
    [
        ({}, [], "is COMPLETED with searcher.max_length {'batches': 40}, so there is nothing to train"),
        ({}, ["searcher.max_length={batches: 30}"], "is 40, and 30 is less"),
        ({}, ["searcher.max_length={epochs: 100}"], "has the unit batches; give the new one in the same unit"),
        ({}, ["searcher.name=random", "searcher.max_trials=3"], "changed searcher.name"),
        ({}, ["searcher.metric=other"], "changed searcher.metric"),
        ({}, ["hyperparameters.lr=1"], "changed hyperparameters"),
        ({}, ["entrypoint=other"], "changed entrypoint"),
        ({}, ["checkpoint_storage.container_path=/elsewhere"], "changed checkpoint_storage.container_path"),
        ({}, ["reproducibility.experiment_seed=3"], "changed reproducibility"),
        ({"name": "adaptive_asha", "max_trials": 2}, [], "has no length that could be extended"),
        ({"name": "adaptive_asha", "max_trials": 2}, [LONGER], "changed searcher.max_length"),
    ],
)
def test_changes_that_make_continuing_impossible_are_refused(
    store: TrackingStore, saved: Saved, searcher: dict[str, Any], changes: list[str], message: str
) -> None:
    experiment = saved(State.COMPLETED, **searcher)
    with pytest.raises(InvalidExperimentException, match=message):
        continue_experiment(store, experiment.id, changes)
    assert store.experiment(experiment.id) == experiment


def test_keys_that_leave_the_trials_alone_may_change(store: TrackingStore, saved: Saved) -> None:
    experiment = saved(State.CANCELED)
    changes = ["max_restarts=9", "checkpoint_storage.save_trial_latest=3", "min_validation_period={batches: 10}"]
    changed = continue_experiment(store, experiment.id, changes)
    assert (changed.config["max_restarts"], changed.config["checkpoint_storage"]["save_trial_latest"]) == (9, 3)


def test_wrong_values_are_errors_of_the_config(store: TrackingStore, saved: Saved) -> None:
    experiment = saved(State.COMPLETED)
    with pytest.raises(ConfigError, match="did you mean 'max_length'"):
        continue_experiment(store, experiment.id, ["searcher.max_lenght={batches: 100}"])
    with pytest.raises(RecordNotFound, match="no experiment 99"):
        continue_experiment(store, 99, [])


def test_an_experiment_with_a_runner_is_busy(store: TrackingStore, saved: Saved) -> None:
    experiment = saved(State.ERROR)
    store.acquire_lease(experiment.id, "somebody", seconds=60)
    with pytest.raises(ExperimentBusy, match="being run by somebody; to stop it first: det experiment pause 1"):
        continue_experiment(store, experiment.id, [])
    config = {**experiment.config}
    with pytest.raises(ExperimentBusy):  # one that has started since
        store.continue_experiment(experiment.id, config=config, original_config="", restart_search=True)


def test_an_experiment_whose_runner_was_killed_continues_at_once(store: TrackingStore, saved: Saved) -> None:
    experiment = saved(State.ERROR)
    with Lease(store, experiment.id) as lease:
        place, process, _, mark = lease.holder.rsplit(":", 3)
    store.acquire_lease(experiment.id, f"{place}:{process}:1:{mark}", seconds=60)  # an earlier process with this id
    assert continue_experiment(store, experiment.id, ["max_restarts=9"]).state is State.PAUSED


def test_lost_checkpoints_are_named(store: TrackingStore, saved: Saved, tmp_path: Path) -> None:
    experiment = saved(State.COMPLETED)
    for file in (tmp_path / "checkpoints").rglob("*"):
        if file.is_file():
            file.unlink()
    advice = "then: repeat this command; or start a new experiment, with checkpoint_storage.save_trial_latest: 1$"
    with pytest.raises(DetError, match=f"none of its checkpoints can be restored.*{advice}"):
        continue_experiment(store, experiment.id, [LONGER])
    [*_, last] = store.checkpoints(experiment_id=experiment.id)
    with pytest.raises(InvalidExperimentException, match="is not in this experiment's checkpoint_storage"):
        _with_code(store, experiment, last.uuid)


def _with_code(store: TrackingStore, experiment: ExperimentRecord, uuid: str) -> None:
    """Fork an experiment that was recorded without code, as if it had an empty directory."""
    from det_core.config import parse_config
    from det_core.runner import submit_experiment
    from det_core.scratch import scratch_directory

    searcher = {**experiment.config["searcher"], "source_checkpoint_uuid": uuid}
    with scratch_directory("test") as directory:
        submit_experiment(store, parse_config({**experiment.config, "searcher": searcher}), directory)


def test_a_checkpoint_of_another_experiment_is_refused(store: TrackingStore, saved: Saved) -> None:
    one, other = saved(State.COMPLETED), saved(State.COMPLETED)
    [*_, last] = store.checkpoints(experiment_id=other.id)
    with pytest.raises(DetError, match=f"belongs to experiment {other.id}; type: det experiment continue {other.id} "):
        fork_experiment(store, one.id, last.uuid, [])
    with pytest.raises(DetError, match="without its code"):
        fork_experiment(store, other.id, last.uuid, [])
    with pytest.raises(RecordNotFound, match="no checkpoint nothing"):
        fork_experiment(store, one.id, "nothing", [])


def test_a_script_is_run_again_instead(store: TrackingStore) -> None:
    experiment = store.create_experiment(config={}, unmanaged=True)
    with pytest.raises(DetError, match="recorded by a script"):
        continue_experiment(store, experiment.id, [])


@pytest.mark.integration
def test_the_command_continues_and_follows(
    store: TrackingStore, new_experiment: Submit, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = new_experiment(searcher=length(20))
    assert run(store, experiment) is State.COMPLETED
    assert main(["experiment", "continue", str(experiment.id), "--config", LONGER, "--follow", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps_completed"] == 100
    [*_, last] = store.checkpoints(experiment_id=experiment.id)
    arguments = ["experiment", "continue", str(experiment.id), "--checkpoint", last.uuid]
    assert main([*arguments, "--config", "searcher.max_length={batches: 3}", "--follow", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == experiment.id + 1
