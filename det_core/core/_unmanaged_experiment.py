"""Recording of scripts that run without a runner, each as an experiment with one trial."""

from __future__ import annotations

import logging
import os
import random
import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from det_core.core._cluster_info import TrialInfo
from det_core.core._distributed import DistributedContext
from det_core.core._experiment_settings import ExperimentSettings
from det_core.core._signals import ScriptTerminated
from det_core.errors import StoreUnsuitable, TrackingError
from det_core.home import user_name
from det_core.interfaces.records import REQUESTS, State
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_lazy_store, open_store
from det_core.tracking._open import file_url
from det_core.tracking.secret_files import extract_secrets

_log = logging.getLogger("det.core")


def complete_config(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a complete experiment config for a script.

    Args:
        given: config keys that the script passes, or None.
    """
    from det_core.core._python_session import in_notebook  # processes of a runner do not need it

    defaults: dict[str, Any] = {
        "name": "notebook" if in_notebook() else Path(sys.argv[0]).name or "interactive",
        "entrypoint": sys.argv or [""],
        "searcher": {"name": "single", "metric": "validation_loss", "max_length": {"epochs": 1}},
    }
    given = given or {}
    return {**defaults, **given, "searcher": {**defaults["searcher"], **given.get("searcher", {})}}


def start_unmanaged_experiment(
    settings: ExperimentSettings, distributed: DistributedContext
) -> tuple[TrackingStore, TrialInfo, str]:
    """Record the script, once for all its workers.

    Args:
        settings: the script's config.
        distributed: rank of this worker and connection to the others.

    Returns:
        The open tracking store, the script's trial, and the store's cluster id.
    """
    if distributed.rank == 0:
        store = _open()
        trial = _record(store, settings)
        distributed.broadcast((store.url, trial, store.cluster_id))
        return store, trial, store.cluster_id
    url, trial, cluster_id = distributed.broadcast(None)
    return open_lazy_store(url), trial, cluster_id


def make_request_poll(store: TrackingStore, trial: TrialInfo) -> Callable[[], str | None]:
    """Return a function that polls the tracking store for requests such as ``det experiment pause``.

    The function returns the source of a request to stop, or None.
    """

    def look() -> str | None:
        return "record" if store.experiment(trial.experiment_id).state in REQUESTS else None

    return look


def end_unmanaged_experiment(
    store: TrackingStore, trial: TrialInfo, error: BaseException | None, *, left_early: bool
) -> State:
    """Record the final state of the script, and return it.

    Args:
        store: the tracking store.
        trial: the script's trial.
        error: the exception that ended the script, or None.
        left_early: whether the script acknowledged a request to stop.
    """
    state = _final_state(error)
    if left_early and state is State.COMPLETED:
        state = REQUESTS.get(store.experiment(trial.experiment_id).state, State.CANCELED)
    reason = describe_error(error) if state is State.ERROR else None
    if reason:
        store.end_run(trial.trial_id, trial.trial_run_id, reason=reason)
    store.set_trial_state(trial.trial_id, state)
    store.set_experiment_state(trial.experiment_id, state, error=reason)
    return state


def describe_error(error: BaseException | None) -> str | None:
    """Return an error as ``Class: message`` in one line, or None if it is none."""
    if error is None or (isinstance(error, SystemExit) and not error.code):
        return None
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _open() -> TrackingStore:
    """Open the embedded tracking store.

    If the home directory is unsuitable because it is on a network file system, open a store in the temporary directory
    of this node.
    """
    try:
        return open_store()
    except StoreUnsuitable as error:
        directory = Path(tempfile.gettempdir(), f"det-{os.getuid()}")
        directory.mkdir(mode=0o700, exist_ok=True)
        if directory.is_symlink() or directory.stat().st_uid != os.getuid():
            raise TrackingError(
                f"{directory} is a link or belongs to another user; set DET_HOME to a local directory of your own"
            ) from error
        _log.warning("%s This script is recorded in %s instead.", error, directory)
        return open_store(file_url(directory / "det.db"))


def _record(store: TrackingStore, settings: ExperimentSettings) -> TrialInfo:
    seed = settings.dumped["reproducibility"]["experiment_seed"]
    hparams = _sample(settings, seed)
    config = extract_secrets(dict(settings.dumped))
    experiment = store.create_experiment(config=config, owner=user_name(), unmanaged=True)
    trial = store.create_trial(experiment.id, hparams=hparams, seed=seed)
    if settings.max_length:
        store.set_searcher_operation(trial.id, settings.max_length)
    run = store.start_run(trial.id, allocation_id=str(uuid.uuid4()))
    store.set_experiment_state(experiment.id, State.ACTIVE)
    store.set_trial_state(trial.id, State.ACTIVE)
    return TrialInfo(
        trial_id=trial.id,
        experiment_id=experiment.id,
        trial_seed=seed,
        hparams=hparams,
        config=config,
        steps_completed=0,
        trial_run_id=run.run_id,
    )


def _sample(settings: ExperimentSettings, seed: int) -> dict[str, Any]:
    if not settings.dumped["hyperparameters"]:
        return {}
    from det_core.config import sample_hyperparameters

    return sample_hyperparameters(settings.parsed().hyperparameters, random.Random(seed))  # noqa: S311


def _final_state(error: BaseException | None) -> State:
    if error is None or (isinstance(error, SystemExit) and not error.code):
        return State.COMPLETED
    return State.CANCELED if isinstance(error, (KeyboardInterrupt, ScriptTerminated)) else State.ERROR
