"""Training in the background, on this host or by the det server that has the tracking store."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from det_core.config import ExperimentConfig
from det_core.errors import ExperimentBusy, InvalidExperimentException
from det_core.home import default_storage
from det_core.interfaces.records import ExperimentRecord
from det_core.interfaces.tracking import TrackingStore
from det_core.json_values import copy_as_json
from det_core.launch.context_archive import pack_context_dir
from det_core.runner._code_checks import check_code
from det_core.runner._continuation import continue_experiment, fork_experiment
from det_core.runner._detached import start_detached
from det_core.runner._experiment_runner import ExperimentRunner
from det_core.runner._submit import submit_experiment
from det_core.tracking import is_server_url
from det_core.tracking.control import living_runner
from det_core.tracking.remote import ServerConnection
from det_core.tracking.secret_files import resolve_secrets

Recorded = Callable[[ExperimentRecord], object]
"""Function that is called with an experiment once it is recorded, and on this host before its runner starts."""


def train_in_background(
    store: TrackingStore,
    config: ExperimentConfig,
    context_dir: Path,
    *,
    original_config: str = "",
    recorded: Recorded = bool,
) -> ExperimentRecord:
    """Record a new experiment and start its runner.

    A det server receives the code and the config with its secrets, and trains with its own launcher.

    Args:
        store: the tracking store.
        config: the config of the experiment.
        context_dir: directory with the user's code.
        original_config: text of the config as the user wrote it.
        recorded: function that receives the experiment.

    Raises:
        DetError: as `submit_experiment` and `start_detached`. A server says so in its own words.
    """
    if is_server_url(store.url):
        experiment = _upload(store, config, context_dir, original_config)
        recorded(experiment)
        return experiment
    experiment = submit_experiment(store, config, context_dir, original_config=original_config)
    recorded(experiment)
    start_detached(store, experiment.id)
    return experiment


def continue_in_background(
    store: TrackingStore,
    experiment_id: int,
    changes: Sequence[str],
    *,
    checkpoint: str | None = None,
    recorded: Recorded = bool,
) -> ExperimentRecord:
    """Train an ended experiment further, or start a new one from one of its checkpoints.

    Args:
        store: the tracking store.
        experiment_id: the experiment.
        changes: changes of the config, each as ``KEY=VALUE``.
        checkpoint: uuid of the checkpoint that a new experiment starts from.
        recorded: function that receives the experiment.

    Raises:
        DetError: as `continue_experiment` or `fork_experiment`, and `start_detached`.
    """
    if is_server_url(store.url):
        wanted = {"changes": list(changes), "checkpoint": checkpoint, "external_id": uuid.uuid4().hex}
        answer = _post(store, f"/api/experiments/{experiment_id}/continue", wanted)
        experiment = store.experiment(answer.get("id", experiment_id))
        recorded(experiment)
        return experiment
    if checkpoint is None:
        experiment = continue_experiment(store, experiment_id, changes)
    else:
        experiment = fork_experiment(store, experiment_id, checkpoint, changes)
    recorded(experiment)
    start_detached(store, experiment.id)
    return experiment


def resume_in_background(
    store: TrackingStore, experiment_id: int, *, from_beginning: bool = False, recorded: Recorded = bool
) -> None:
    """Start a runner for an experiment that stopped.

    Args:
        store: the tracking store.
        experiment_id: the experiment.
        from_beginning: as for `ExperimentRunner`.
        recorded: function that receives the experiment before the runner starts.

    Raises:
        DetError: no runner can run the experiment.
        ExperimentBusy: it has a runner.
    """
    if living_runner(store.lease_holder(experiment_id)):
        raise ExperimentBusy(
            f"experiment {experiment_id} is running already; watch it with: det experiment logs {experiment_id} -f, "
            f"stop it with: det experiment pause {experiment_id}"
        )
    if not is_server_url(store.url):
        ExperimentRunner(store, experiment_id)  # raises an error if no runner can run it, before a process is started
    recorded(store.experiment(experiment_id))
    if is_server_url(store.url):
        _post(store, f"/api/experiments/{experiment_id}/start", {"from_beginning": from_beginning})
    else:
        start_detached(store, experiment_id, from_beginning=from_beginning)


def without_own_directory(config: dict[str, Any]) -> dict[str, Any]:
    """Leave the choice of the checkpoint storage to the server if the config chose the default one of this machine."""
    own, block = default_storage(), config.get("checkpoint_storage") or {}
    if own.items() <= block.items():
        config["checkpoint_storage"] = {name: value for name, value in block.items() if name not in own} or None
    return config


def _upload(
    store: TrackingStore, config: ExperimentConfig, context_dir: Path, original_config: str
) -> ExperimentRecord:
    if config.entrypoint is None:
        raise InvalidExperimentException("the config has no entrypoint; add one, such as entrypoint: model_def:MyTrial")
    check_code(config, context_dir)
    document = {
        "config": without_own_directory(copy_as_json(resolve_secrets(config.dump()))),
        "original_config": original_config,
        "code": base64.b64encode(pack_context_dir(context_dir)).decode(),
        "external_id": uuid.uuid4().hex,  # a repeated request returns the same experiment
    }
    return store.experiment(_post(store, "/api/experiments", document)["id"])


def _post(store: TrackingStore, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
    with closing(ServerConnection(store.url)) as server:
        return server.post(path, document)
