"""Launch request for one run of a trial."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from det_core.config import ExperimentConfig, is_command
from det_core.core.failure_notes import KNOWN_FAILURE, failure_fingerprints
from det_core.interfaces.launcher import PYTHON, Launcher, LaunchRequest
from det_core.interfaces.records import CheckpointRecord, ExperimentRecord, Run, TrialRecord
from det_core.interfaces.tracking import TrackingStore
from det_core.launch import backends
from det_core.launch.launchers import variables_of
from det_core.tracking import AGENT_URL, is_server_url
from det_core.tracking.remote import Caller, RunAccess, answer_call
from det_core.tracking.secret_files import read_secrets


def build_launch_request(
    config: ExperimentConfig,
    trial: TrialRecord,
    run: Run,
    latest: CheckpointRecord | None,
    *,
    experiment: ExperimentRecord,
    code: bytes,
    store: TrackingStore,
    launcher: Launcher,
    log: Callable[[int | None, str, str], None],
    known_failure: str = "",
) -> LaunchRequest:
    """Return the launch request for a run of a trial.

    Args:
        config: the config of the experiment.
        trial: the trial to run.
        run: the run to launch.
        latest: the checkpoint that the run starts from, or None for a start from the beginning.
        experiment: the experiment of the trial.
        code: the code of the experiment, as `LaunchRequest.code`.
        store: the tracking store.
        launcher: the launcher that will start it.
        log: function that receives the output, as `LaunchRequest.log`.
        known_failure: failure of the last run from the same checkpoint, whose traceback is not shown again.

    Raises:
        InvalidExperimentException, PluginError: as `det_core.launch.backends.choose_backend`.
    """
    access = RunAccess(trial.experiment_id, trial.id, run.run_id, latest.uuid if latest else None)
    worker = Caller(user=experiment.owner, run=access)
    return LaunchRequest(
        key=trial_key(store, trial),
        argv=_argv(config),
        code=code,
        env={
            **variables_of(config, launcher.device()),
            "DET_COMM_KEY": secrets.token_hex(32),
            **({KNOWN_FAILURE: failure_fingerprints(known_failure)} if known_failure else {}),
        },
        secrets=read_secrets(config.dump()),
        slots=max(config.resources.slots_per_trial, 1),
        log=log,
        call=partial(answer_call, store, caller=worker),
        info=build_run_info(store, config.dump(), trial, run, latest),
        priority=config.resources.priority or LaunchRequest.priority,
        submitted=experiment.start_time,
    )


def experiment_key(store: TrackingStore, experiment_id: int) -> str:
    """Return the name of an experiment in engines, unique among all tracking stores."""
    return f"{store.cluster_id}-exp-{experiment_id}"  # with that of a trial at most 63 characters, as labels have


def trial_key(store: TrackingStore, trial: TrialRecord) -> str:
    """Return the name of a trial in engines, unique among all tracking stores."""
    return f"{experiment_key(store, trial.experiment_id)}-trial-{trial.id}"


def build_run_info(
    store: TrackingStore, config: Mapping[str, Any], trial: TrialRecord, run: Run, latest: CheckpointRecord | None
) -> dict[str, dict[str, Any]]:
    """Return the content of `LaunchRequest.info` for a run, by file name.

    Args:
        store: the tracking store.
        config: the config of the experiment, complete and JSON-compatible.
        trial: the trial to run.
        run: the run to launch.
        latest: the checkpoint that the run starts from, or None for a start from the beginning.
    """
    continues = latest is not None and latest.trial_id == trial.id
    return {
        "cluster.json": {
            "master_url": _worker_url(store),
            "cluster_id": store.cluster_id,
            "agent_id": "local",
            "task_id": trial.task_id,
            "task_type": "TRIAL",
            "allocation_id": run.allocation_id,
            "session_token": "",
            "latest_checkpoint": latest.uuid if latest else None,
        },
        "trial.json": {
            "trial_id": trial.id,
            "experiment_id": trial.experiment_id,
            "trial_seed": trial.seed,
            "hparams": trial.hparams,
            "config": config,
            "steps_completed": latest.steps_completed if latest and continues else 0,
            "trial_run_id": run.run_id,
        },
    }


def _worker_url(store: TrackingStore) -> str:
    """Return the URL with which workers open the store. Only the runner calls a det server, with the user's token."""
    return AGENT_URL if is_server_url(store.url) else store.url


def _argv(config: ExperimentConfig) -> Sequence[str]:
    entrypoint = config.entrypoint
    if entrypoint is None or not is_command(entrypoint):
        backend, worker = backends.choose_backend(config, None, os.environ), ["-m", "det_core.launch.worker"]
        start = ["-m", "det_core.launch", backend.name, "--"] if backend else []
        return [PYTHON, *start, *worker]
    return ["/bin/sh", "-c", entrypoint] if isinstance(entrypoint, str) else entrypoint
