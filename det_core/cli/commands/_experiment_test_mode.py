"""Command ``det experiment create --test``, which tests whether a trial can train, validate and checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from det_core import storage
from det_core.cli.commands.run import submit_config_file, train_in_foreground
from det_core.cli.render.printing import print_json
from det_core.cli.render.records import all_checkpoints
from det_core.config import ExperimentConfig, parse_config
from det_core.core import open_storage_block
from det_core.experimental._one_batch import one_batch_config, temporary_home
from det_core.interfaces.records import ExperimentRecord, State
from det_core.interfaces.tracking import TrackingStore
from det_core.text import format_count, format_scalars, format_size, format_table
from det_core.tracking import open_store


@dataclass(frozen=True, kw_only=True)
class OneBatchResult:
    """Results of a test with one batch. Parts that produced no result are None."""

    state: State
    error: str | None
    training: Mapping[str, Any] | None
    validation: Mapping[str, Any] | None
    checkpoint: Mapping[str, int] | None
    """Sizes of the checkpoint's files in bytes, by path."""


def run_one_batch_test(config: ExperimentConfig, path: Path, directory: Path, *, as_json: bool) -> int:
    """Train one batch in this process, print which parts work, and return the exit code.

    Records and files of the test are removed.

    Args:
        config: the experiment config.
        path: file of the config.
        directory: directory with the user's code.
        as_json: whether to print JSON.
    """
    shortened = parse_config(one_batch_config(config.dump()), filename=str(path))
    with temporary_home(), open_store() as store:
        experiment = submit_config_file(store, shortened, path, directory)
        try:
            code = train_in_foreground(store, experiment.id, quiet=as_json)
            found = _findings(store, experiment.id)
        finally:
            _remove_stored(store, experiment)
    if as_json:
        print_json(found)
    else:
        print(_text(found))
        if code == 0:
            print(f"To train it: det run {path} {directory}")
    return code


def _findings(store: TrackingStore, experiment_id: int) -> OneBatchResult:
    experiment = store.experiment(experiment_id)
    metrics = {
        report.group: report.metrics for trial in store.trials(experiment_id) for report in store.metrics(trial.id)
    }
    checkpoint = next(iter(store.checkpoints(experiment_id=experiment_id)), None)
    return OneBatchResult(
        state=experiment.state,
        error=experiment.error,
        training=metrics.get("training"),
        validation=metrics.get("validation"),
        checkpoint=checkpoint.resources if checkpoint else None,
    )


def _remove_stored(store: TrackingStore, experiment: ExperimentRecord) -> None:
    checkpoints = all_checkpoints(store, experiment_id=experiment.id)
    for storage_id in (store.cluster_id, *(checkpoint.uuid for checkpoint in checkpoints)):
        storage.delete_stored_files(open_storage_block(experiment.config["checkpoint_storage"]), storage_id)


def _text(found: OneBatchResult) -> str:
    files = found.checkpoint
    details = {
        "training": format_scalars(found.training or {}),
        "validation": format_scalars(found.validation or {}),
        "checkpoint": f"{format_count(len(files), 'file')}, {format_size(sum(files.values()))}" if files else "",
    }
    rows = [(part, "no" if getattr(found, part) is None else "yes", detail) for part, detail in details.items()]
    passed = found.state is State.COMPLETED
    verdict = "The test passed." if passed else f"The test failed: {found.error or found.state.value}"
    return f"{format_table(('part', 'works', 'result'), rows)}\n{verdict}"
