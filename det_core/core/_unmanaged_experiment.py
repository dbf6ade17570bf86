"""Recording of scripts that run without a runner, each as an experiment with one trial."""

from __future__ import annotations

import logging
import os
import random
import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from det_core.core._cluster_info import TrialInfo
from det_core.core._distributed import DistributedContext
from det_core.core._experiment_settings import ExperimentSettings, default_settings, parse_settings
from det_core.core._preempt import ScriptTerminated
from det_core.core.event_stream import describe_error
from det_core.errors import DetError, NoCheckpoint, StoreUnsuitable, TrackingError
from det_core.home import user_name
from det_core.interfaces.records import (
    REQUESTS,
    CheckpointRecord,
    CheckpointState,
    CodeVersion,
    ExperimentRecord,
    State,
    TrialRecord,
)
from det_core.interfaces.storage import StorageManager
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store
from det_core.tracking._open import file_url, open_existing_store
from det_core.tracking.secret_files import extract_secrets, resolve_secrets

if TYPE_CHECKING:
    from det_core.tracking._lease import Lease

_WITHOUT_LENGTH = {"searcher": {"max_length": None}}
"""Config of a script whose trainer is told the length of the training."""

_log = logging.getLogger("det.core")


class RecordedScript(NamedTuple):
    """Record of a script that runs by itself."""

    store: TrackingStore
    """The open tracking store."""
    trial: TrialInfo
    """Trial of the script."""
    cluster_id: str
    """Id of the tracking store."""
    checkpoint: str | None
    """Storage id of the checkpoint to continue from, or None for a start at the beginning."""
    lease: Lease | None = None
    """Hold of the chief on the experiment. None on other workers."""


def complete_config(given: Mapping[str, Any] | None, workers: int) -> dict[str, Any]:
    """Return a complete experiment config for a script.

    Args:
        given: config keys that the script passes, or None.
        workers: number of workers.
    """
    from det_core.core._python_session import in_notebook  # processes of a runner do not need them
    from det_core.core.script_command import describe_start

    defaults: dict[str, Any] = {
        "name": "notebook" if in_notebook() else Path(sys.argv[0]).name or "interactive",
        **describe_start(workers),
        "searcher": {"name": "single", "metric": "validation_loss", "max_length": {"epochs": 1}},
    }
    given = given or {}
    return {**defaults, **given, "searcher": {**defaults["searcher"], **given.get("searcher", {})}}


def find_resumed_experiment(resume: int | None, distributed: DistributedContext) -> ExperimentRecord | None:
    """Return the experiment that a script continues, or None for a new one. All workers call this.

    Args:
        resume: id of the experiment from the script's code. The environment variable of the chief takes precedence.
        distributed: rank of this worker and connection to the others.

    Raises:
        ValueError: the id is not one.
        RecordNotFound: the experiment does not exist.
        DetError: it was not recorded by a script.
    """
    from det_core.core.script_command import RESUME  # processes of a runner do not need it

    found = None
    if distributed.rank == 0:
        wanted = os.environ.pop(RESUME, "") or resume  # not for what this process starts or records later
        if wanted is not None:
            with _open() as store:
                found = store.experiment(_to_id(wanted))
            if not found.unmanaged:
                raise DetError(
                    f"experiment {found.id} was not recorded by a script; to continue it: det experiment resume "
                    f"{found.id}"
                )
    experiment: ExperimentRecord | None = distributed.broadcast(found)
    return experiment


def continued_config(experiment: ExperimentRecord, given: Mapping[str, Any] | None, workers: int) -> dict[str, Any]:
    """Return the config for a script that continues an experiment.

    It is that of the experiment, because its trial stays the same, but the script may change ``searcher.max_length``.

    Args:
        experiment: the experiment.
        given: config keys that the script passes, or None.
        workers: number of workers.
    """
    recorded, here = dict(experiment.config), parse_settings(complete_config(given, workers)).dumped
    if "max_length" in (given or {}).get("searcher", {}):
        recorded["searcher"] = {**recorded["searcher"], "max_length": here["searcher"].get("max_length")}
    for key in ("hyperparameters", "searcher"):
        if key in (given or {}) and recorded[key] != here[key]:
            _log.warning(
                "experiment %d continues with its own %s, %s, although this script has %s; for a new experiment, do "
                "not resume",
                experiment.id,
                key,
                recorded[key],
                here[key],
            )
    return recorded


def make_settings(
    resumed: ExperimentRecord | None, config: Mapping[str, Any] | None, storage: object, workers: int
) -> ExperimentSettings:
    """Return the settings of a script.

    Args:
        resumed: experiment that the script continues, or None for a new one.
        config: config keys that the script passes, or None.
        storage: storage of the checkpoints that the script passes, or None.
        workers: number of workers.
    """
    if resumed:
        recorded = continued_config(resumed, config, workers)
        return parse_settings({**recorded, **resolve_secrets({"data": recorded.get("data")})})
    complete = complete_config(config, workers)
    if storage is not None or config not in (None, {}, _WITHOUT_LENGTH):
        return parse_settings(complete)
    return default_settings(complete)


def start_unmanaged_experiment(
    settings: ExperimentSettings,
    distributed: DistributedContext,
    storage: StorageManager,
    resumed: ExperimentRecord | None,
) -> RecordedScript:
    """Record the start of the script, once for all its workers.

    Args:
        settings: the script's config.
        distributed: rank of this worker and connection to the others.
        storage: storage of the checkpoints.
        resumed: experiment that the script continues, or None for a new one.

    Raises:
        ExperimentBusy: the experiment is running.
        NoCheckpoint: it has lost all its checkpoints.
    """
    if distributed.rank == 0:
        store = _open()
        recorded = _continue(store, settings, storage, resumed) if resumed else _record(store, settings)
        distributed.broadcast((store.url, recorded.trial, recorded.cluster_id, recorded.checkpoint))
        return recorded
    from det_core.tracking.remote import open_remote_store  # the chief does not need them
    from det_core.tracking.remote._remote_store import OwnCalls

    url, *rest = distributed.broadcast(None)
    calls = OwnCalls(lambda: (open_existing_store(url), None))
    return RecordedScript(open_remote_store(calls.call, url=url, close=calls.close), *rest)


def make_request_poll(store: TrackingStore, trial: TrialInfo) -> Callable[[], str | None]:
    """Return a function that polls the tracking store for requests such as ``det experiment pause``.

    The function returns the source of a request to stop, or None.
    """

    def poll() -> str | None:
        return "record" if store.experiment(trial.experiment_id).state in REQUESTS else None

    return poll


def end_unmanaged_experiment(
    store: TrackingStore, trial: TrialInfo, lease: str, error: BaseException | None, *, left_early: bool
) -> State:
    """Record the final state of the script, and return it.

    Args:
        store: the tracking store.
        trial: the script's trial.
        lease: holder of the script's lease.
        error: the exception that ended the script, or None.
        left_early: whether the script acknowledged a request to stop.
    """
    state = _final_state(error)
    if left_early and state is State.COMPLETED:
        state = REQUESTS.get(store.experiment(trial.experiment_id).state, State.CANCELED)
    reason = describe_error(error) if state is State.ERROR else None
    if reason:
        store.end_run(trial.trial_id, trial.trial_run_id, reason=reason, lease=lease)
    store.set_trial_state(trial.trial_id, state, lease=lease)
    store.set_experiment_state(trial.experiment_id, state, lease=lease, error=reason)
    return state


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


def _record(store: TrackingStore, settings: ExperimentSettings) -> RecordedScript:
    hparams = _sample(settings)
    config = extract_secrets(dict(settings.dumped))
    experiment = store.create_experiment(config=config, owner=user_name(), unmanaged=True, code_version=_code_version())
    lease = _hold(store, experiment)
    trial = store.create_trial(experiment.id, hparams=hparams, seed=_seed(settings), lease=lease.holder)
    return _start_run(store, lease, settings, trial, config, None)


def _code_version() -> CodeVersion | None:
    """Return the commit of the script, or of the working directory of a session without one, which may change."""
    from det_core.core._python_session import is_interactive  # processes of a runner do not need them
    from det_core.core.code_version import read_code_version

    return read_code_version(Path()) if is_interactive() else _version_of_script(sys.argv[0])


@cache
def _version_of_script(script: str) -> CodeVersion | None:
    """Return the commit of a script. Git runs once."""
    from det_core.core.code_version import read_code_version

    return read_code_version(Path(script).parent)


def _continue(
    store: TrackingStore, settings: ExperimentSettings, storage: StorageManager, experiment: ExperimentRecord
) -> RecordedScript:
    from det_core.core.intact_checkpoints import find_newest_intact, lost_checkpoints  # few scripts need them

    lease = _hold(store, experiment)
    try:
        trial, *_ = store.trials(experiment.id) or [  # the script was killed before it recorded one
            store.create_trial(experiment.id, hparams=_sample(settings), seed=_seed(settings), lease=lease.holder)
        ]
        known = store.checkpoints(trial_id=trial.id, states=list(CheckpointState))
        start = find_newest_intact(store, storage, known)
        if start.checkpoint is None and (lost := lost_checkpoints(known)):
            raise NoCheckpoint(
                f"experiment {experiment.id} has trained {lost[-1].steps_completed} batches, but none of its "
                "checkpoints can be restored; restore their files (is the disk mounted?), or do not resume"
            )
        for line in start.warnings():
            _log.warning(line)
        config = extract_secrets(dict(settings.dumped))
        return _start_run(store, lease, settings, trial, config, start.checkpoint)
    except BaseException:
        lease.release()
        raise


def _hold(store: TrackingStore, experiment: ExperimentRecord) -> Lease:
    from det_core.tracking._lease import Lease  # processes of a runner do not need it

    return Lease(store, experiment.id)


def _start_run(
    store: TrackingStore,
    lease: Lease,
    settings: ExperimentSettings,
    trial: TrialRecord,
    config: dict[str, Any],
    checkpoint: CheckpointRecord | None,
) -> RecordedScript:
    if settings.max_length:
        store.set_searcher_operation(trial.id, settings.max_length.value, lease=lease.holder)
    run = store.start_run(trial.id, allocation_id=str(uuid.uuid4()), lease=lease.holder)
    store.set_experiment_state(trial.experiment_id, State.ACTIVE, lease=lease.holder)
    store.set_trial_state(trial.id, State.ACTIVE, lease=lease.holder)
    info = TrialInfo(
        trial_id=trial.id,
        experiment_id=trial.experiment_id,
        trial_seed=trial.seed,
        hparams=dict(trial.hparams),
        config=config,
        steps_completed=(checkpoint.steps_completed or 0) if checkpoint else 0,
        trial_run_id=run.run_id,
    )
    return RecordedScript(store, info, store.cluster_id, checkpoint.uuid if checkpoint else None, lease)


def _to_id(wanted: str | int) -> int:
    try:
        number = int(wanted)
    except (TypeError, ValueError):
        number = 0
    if number < 1 or isinstance(wanted, bool):
        raise ValueError(
            f"cannot resume {wanted!r}; expected the id of an experiment, which `det experiment list` shows"
        )
    return number


def _seed(settings: ExperimentSettings) -> int:
    return int(settings.dumped["reproducibility"]["experiment_seed"])


def _sample(settings: ExperimentSettings) -> dict[str, Any]:
    if not settings.dumped["hyperparameters"]:
        return {}
    from det_core.config import sample_hyperparameters

    return sample_hyperparameters(settings.parsed().hyperparameters, random.Random(_seed(settings)))  # noqa: S311


def _final_state(error: BaseException | None) -> State:
    if error is None or (isinstance(error, SystemExit) and not error.code):
        return State.COMPLETED
    return State.CANCELED if isinstance(error, (KeyboardInterrupt, ScriptTerminated)) else State.ERROR
