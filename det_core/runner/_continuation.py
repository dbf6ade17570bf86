"""Further training of experiments that have ended."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from det_core.config import (
    ExperimentConfig,
    Length,
    Unit,
    note_changes,
    parse_config,
    replace_texts,
)
from det_core.core import open_storage_block
from det_core.core.script_command import explain_script
from det_core.errors import DetError, ExperimentBusy, InvalidExperimentException
from det_core.home import private_directory
from det_core.interfaces.framework import SCHEDULE_END
from det_core.interfaces.records import ExperimentRecord, State, TrialRecord
from det_core.interfaces.storage import RETENTION_KEYS
from det_core.interfaces.tracking import TrackingStore
from det_core.launch.context_archive import unpack_context_dir
from det_core.runner._starting_point import choose_starting_point
from det_core.runner._submit import submit_experiment
from det_core.scratch import scratch_directory
from det_core.storage import check_storage
from det_core.tracking._lease import release_dead_holder
from det_core.tracking.control import living_runner
from det_core.tracking.secret_files import renew_places, replace_secrets, resolve_secrets, store_secrets

_log = logging.getLogger("det.runner")

_CHANGEABLE = (
    "checkpoint_code",
    "checkpoint_interval",
    "checkpoint_policy",
    "debug",
    "distributed",
    "environment",
    "launcher",
    "max_restarts",
    "min_checkpoint_period",
    "min_validation_period",
    "observers",
    "perform_initial_validation",
    "preemption_timeout",
    "profiling",
    "rehearsal",
    "resources",
    "restart_repeated_failures",
    "scheduling_unit",
    "stop_on_nan",
)
"""Keys that may change while the trials stay the same."""
_INDEPENDENT = ("single", "random", "grid")
"""Search methods that create the same trials, whatever their lengths and results."""
_EXTENT = ("max_length", "max_trials", "max_concurrent_trials")


def continue_experiment(
    store: TrackingStore, experiment_id: int, changes: Sequence[str], *, by_client: bool = False
) -> ExperimentRecord:
    """Prepare an experiment that has ended or is paused for further training, with the same trials.

    Args:
        store: the tracking store.
        experiment_id: the experiment.
        changes: changes of the config, each as ``KEY=VALUE``, such as a larger ``searcher.max_length``.
        by_client: whether somebody else than the user of this process asks for it. Blocks with secrets can then be
            changed only together with these, or the secrets could be sent to another place.

    Returns:
        The experiment in state PAUSED, ready for a runner.

    Raises:
        ConfigError: the changed config is wrong.
        ExperimentBusy: the experiment is running.
        DetError: the experiment was recorded by a script, or its trials have no checkpoint to continue from.
        InvalidExperimentException: the changes would make it another experiment, or leave nothing to train.
        SecretMissing: the config refers to a secret that is not on this host.
    """
    experiment = _idle_experiment(store, experiment_id)
    before = parse_config(resolve_secrets(experiment.config))
    after = _change(experiment.config, changes, experiment_id, by_client=by_client)
    if refused := sorted(_refused_changes(before.dump(), after.dump())):
        raise InvalidExperimentException(
            f"experiment {experiment_id} cannot continue with a changed {', '.join(refused)}, because its trials would "
            f"no longer be the same; for a new experiment from one of its checkpoints: "
            f"det experiment continue {experiment_id} --checkpoint UUID --config KEY=VALUE"
        )
    trials = store.trials(experiment_id)
    extended = before.searcher != after.searcher
    if experiment.state is State.COMPLETED and not extended:
        raise InvalidExperimentException(_nothing_to_train(experiment, before))
    if extended:
        _check_length(store, experiment, before, after, trials)
    _check_checkpoints(store, experiment, after, trials)
    complete = after.dump()
    known = store_secrets(complete)
    release_dead_holder(store, experiment_id)  # the first write, because others wait from then on
    try:
        return store.continue_experiment(
            experiment_id,
            config=replace_secrets(complete, known),
            original_config=replace_texts(note_changes(experiment.original_config, changes, complete), known),
            restart_search=before.searcher.name in _INDEPENDENT,
        )
    except ExperimentBusy as error:
        raise _busy(experiment_id, str(error)) from error


def fork_experiment(
    store: TrackingStore,
    experiment_id: int,
    checkpoint_uuid: str,
    changes: Sequence[str],
    *,
    by_client: bool = False,
    owner: str | None = None,
    external_id: str | None = None,
) -> ExperimentRecord:
    """Record a new experiment with one trial that starts from a checkpoint of another experiment, with the same code.

    Args:
        store: the tracking store.
        experiment_id: the experiment of the checkpoint.
        checkpoint_uuid: the checkpoint.
        changes: changes of the config, each as ``KEY=VALUE``. Hyperparameters are those of the checkpoint's trial.
        by_client: as for `continue_experiment`.
        owner: as for `submit_experiment`.
        external_id: as for `submit_experiment`.

    Returns:
        The experiment in state QUEUED.

    Raises:
        ConfigError: the changed config is wrong.
        DetError: the experiment has no such checkpoint, or was recorded by a script without its code.
        InvalidExperimentException: the checkpoint is incomplete, damaged or no longer stored.
        SecretMissing: the config refers to a secret that is not on this host, or a client has changed its block.
    """
    experiment, checkpoint = store.experiment(experiment_id), store.checkpoint(checkpoint_uuid)
    trial = store.trial(checkpoint.trial_id)
    if trial.experiment_id != experiment_id:
        raise DetError(
            f"checkpoint {checkpoint_uuid} belongs to experiment {trial.experiment_id}; type: "
            f"det experiment continue {trial.experiment_id} --checkpoint {checkpoint_uuid}"
        )
    code = store.model_definition(experiment_id)
    if not code:
        raise DetError(f"experiment {experiment_id} was recorded by a script, without its code; run the script again")
    config = dict(experiment.config)
    known = config["searcher"]
    searcher = {key: known[key] for key in ("metric", "smaller_is_better", "max_length") if known.get(key) is not None}
    config["searcher"] = {"name": "single", **searcher, "source_checkpoint_uuid": checkpoint_uuid}
    config["hyperparameters"] = {name: {"type": "const", "val": value} for name, value in trial.hparams.items()}
    parsed = _change(config, changes, experiment_id, by_client=by_client)
    changed = note_changes(experiment.original_config, changes, parsed.dump())
    text = f"# from checkpoint {checkpoint_uuid} of experiment {experiment_id}\n{changed}"
    with scratch_directory("context", private_directory("runs")) as directory:
        unpack_context_dir(code, directory)
        return submit_experiment(
            store,
            parsed,
            directory,
            original_config=text,
            owner=owner,
            external_id=external_id,
            copied_from=experiment_id,
        )


def _change(
    recorded: Mapping[str, Any], changes: Sequence[str], experiment_id: int, *, by_client: bool
) -> ExperimentConfig:
    """Return a recorded config with changes and with its secrets.

    Those of a client come first. A reference to a secret in a block that they change is then in none of its places.
    """
    filename = f"experiment {experiment_id}"
    if by_client:
        renew_places(recorded, parse_config(recorded).dump())
        recorded, changes = parse_config(recorded, filename=filename, changes=changes).dump(), ()
    return parse_config(resolve_secrets(recorded), filename=filename, changes=changes)


def _idle_experiment(store: TrackingStore, experiment_id: int) -> ExperimentRecord:
    experiment = store.experiment(experiment_id)
    if experiment.unmanaged:
        raise DetError(explain_script(experiment))
    if holder := living_runner(store.lease_holder(experiment_id)):
        raise _busy(experiment_id, f"experiment {experiment_id} is being run by {holder}")
    return experiment


def _busy(experiment_id: int, reason: str) -> ExperimentBusy:
    return ExperimentBusy(f"{reason}; to stop it first: det experiment pause {experiment_id}")


def _refused_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Yield the changed keys that would make other trials."""
    for key in after:
        if key in _CHANGEABLE or before.get(key) == after[key]:
            continue
        old, new = before.get(key), after[key]
        free = {"searcher": _EXTENT, "checkpoint_storage": RETENTION_KEYS}.get(key, ())
        if key == "searcher" and after[key]["name"] not in _INDEPENDENT:
            free = ()
        if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
            yield key
            continue
        yield from (
            f"{key}.{name}" for name in old.keys() | new.keys() if name not in free and old.get(name) != new.get(name)
        )


def _nothing_to_train(experiment: ExperimentRecord, config: ExperimentConfig) -> str:
    identity, length = experiment.id, config.searcher.max_length
    fork = f"det experiment continue {identity} --checkpoint UUID --config KEY=VALUE"
    if config.searcher.name not in _INDEPENDENT or length is None:
        return (
            f"experiment {identity} is COMPLETED, and a search with {config.searcher.name!r} has no length that could "
            f"be extended; for a new experiment from one of its checkpoints: {fork}"
        )
    longer = length.dump() if isinstance(length, Length) else length
    return (
        f"experiment {identity} is COMPLETED with searcher.max_length {longer}, so there is nothing to train; "
        f"give a longer one: det experiment continue {identity} --config searcher.max_length=LENGTH"
    )


def _check_length(
    store: TrackingStore,
    experiment: ExperimentRecord,
    before: ExperimentConfig,
    after: ExperimentConfig,
    trials: Sequence[TrialRecord],
) -> None:
    """Refuse a length of another unit, and one that trials have exceeded. Name schedules that end before it."""
    old, new = before.searcher, after.searcher
    if old.unit != new.unit:
        was = old.unit.value if old.unit else "no unit"
        raise InvalidExperimentException(
            f"searcher.max_length of experiment {experiment.id} has the unit {was}; give the new one in the same unit"
        )
    if old.max_length is None or new.max_length is None:
        if old.max_length is not new.max_length:
            raise InvalidExperimentException(
                "searcher.max_length can be neither added nor removed; create an experiment"
            )
        return
    reached, wanted = _value(old.max_length), _value(new.max_length)
    trained = [trial for trial in trials if trial.steps_completed]
    if wanted > reached:
        _name_schedules(store, trained, new.max_length)
    undoes = experiment.state is not State.COMPLETED and all(_goes_back(store, one, new.max_length) for one in trained)
    if wanted < reached and trained and not undoes:
        raise InvalidExperimentException(
            f"searcher.max_length of experiment {experiment.id} is {reached}, and {wanted} is less; give a longer one, "
            "or, to undo an extension that saved no checkpoint, the one before it"
        )


def _goes_back(store: TrackingStore, trial: TrialRecord, length: Length | int) -> bool:
    """Return whether a trial has completed a length up to the new one, and its later runs have saved no checkpoint."""
    runs = [run for run in store.runs(trial.id) if run.end_time]
    done = [run.run_id for run in runs if run.early_exit or not (run.end_reason or run.preemption_acknowledged)]
    newest = store.checkpoints(trial_id=trial.id)[-1:]
    reached = [one.steps_completed or 0 for one in newest if one.run_id <= max(done, default=0)]
    batches = _batches_of(trial, length)
    return bool(reached) and (batches is None or reached[0] <= batches)


def _name_schedules(store: TrackingStore, trials: Sequence[TrialRecord], length: Length | int) -> None:
    """Warn of schedules of trials that end before the new length."""
    for trial in trials:
        batches = _batches_of(trial, length)
        newest = store.checkpoints(trial_id=trial.id)[-1:]
        end = newest[0].metadata.get(SCHEDULE_END) if newest else None
        if isinstance(end, int) and batches is not None and end < batches:
            _log.warning(
                "a schedule of trial %d, such as that of its learning rate, ends after %d batches, whatever the code "
                "says, and the training goes on after it. If that fails, continue with the length before to undo it",
                trial.id,
                end,
            )


def _batches_of(trial: TrialRecord, length: Length | int) -> int | None:
    """Return the number of batches in a length, rounded up, or None if no worker of the trial has computed it."""
    if isinstance(length, Length) and length.unit is Unit.BATCHES:
        return length.value
    if trial.total_batches is None or trial.searcher_length is None:
        return None
    return -(-trial.total_batches * _value(length) // trial.searcher_length)


def _value(length: Length | int) -> int:
    return length.value if isinstance(length, Length) else length


def _check_checkpoints(
    store: TrackingStore, experiment: ExperimentRecord, config: ExperimentConfig, trials: Sequence[TrialRecord]
) -> None:
    """Refuse to continue if a trial has lost its checkpoints, or has completed without one."""
    storage = open_storage_block(config.dump()["checkpoint_storage"])
    check_storage(storage)
    for trial in trials:
        start = choose_starting_point(store, storage, trial, config.searcher, from_beginning=False)
        if start.checkpoint is None and trial.state is State.COMPLETED:
            raise DetError(
                f"trial {trial.id} of experiment {experiment.id} has completed without a checkpoint, so it cannot "
                "continue; save one in the code, and start a new experiment"
            )
