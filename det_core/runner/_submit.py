"""Submission of new experiments."""

from __future__ import annotations

import os
from pathlib import Path

from det_core.config import ExperimentConfig, parse_config, replace_texts
from det_core.core import open_storage_block
from det_core.core.code_version import read_code_version
from det_core.errors import InvalidExperimentException
from det_core.home import default_storage, user_name
from det_core.interfaces.records import ExperimentRecord
from det_core.interfaces.tracking import TrackingStore
from det_core.launch import backends
from det_core.launch.context_archive import pack_context_dir
from det_core.runner._code_checks import check_code
from det_core.runner._warm_start import check_source_stored, find_source_checkpoint
from det_core.storage import check_storage
from det_core.tracking.secret_files import replace_secrets, resolve_secrets, store_secrets


def submit_experiment(
    store: TrackingStore,
    config: ExperimentConfig,
    context_dir: Path,
    *,
    original_config: str = "",
    owner: str | None = None,
    external_id: str | None = None,
    copied_from: int | None = None,
) -> ExperimentRecord:
    """Record a new experiment with its code, ready for a runner.

    Secrets of the config are moved to files under ``DET_HOME``. The tracking store has references in their places: in
    the config, in its text, and in the YAML files of the context directory, which often contain the same text.

    Args:
        store: the tracking store.
        config: the config of the experiment.
        context_dir: directory with the user's code.
        original_config: text of the config as the user wrote it.
        owner: name of the user who submits it, by default that of this process.
        external_id: id that the caller chose. If an experiment with this id exists, it is returned unchanged.
        copied_from: experiment whose code the directory contains, and whose commit is recorded. By default, it is that
            of the git repository that the directory belongs to.

    Returns:
        The experiment in state QUEUED.

    Raises:
        ConfigError: the code lacks the entrypoint, or reads a hyperparameter that the config does not have.
        DetError: the context directory is missing, too large, or ``DET_HOME``.
        InvalidExperimentException: the config cannot run on this host, or its source checkpoint does not exist.
        StorageError: the checkpoint storage cannot be used.
        SecretMissing: the config was recorded before, and a secret that it refers to is not on this host.
    """
    if config.entrypoint is None:
        raise InvalidExperimentException(
            "the config has no entrypoint; add one, such as entrypoint: model_def:MyTrial or "
            "entrypoint: python3 train.py"
        )
    backends.choose_backend(config, None, os.environ)
    check_code(config, context_dir)
    complete = resolve_secrets(config.dump())
    if complete.get("checkpoint_storage") is None:
        complete["checkpoint_storage"] = default_storage()
    complete = parse_config(complete).dump()
    storage = open_storage_block(complete["checkpoint_storage"])
    check_storage(storage)
    source = find_source_checkpoint(store, config.searcher)
    if source:
        check_source_stored(source, storage)
        # The trial may save further checkpoints, and all runs start from the same one.
        complete["searcher"] |= {"source_trial_id": None, "source_checkpoint_uuid": source.uuid}
    known = store_secrets(complete)
    version = store.code_versions([copied_from]).get(copied_from) if copied_from else read_code_version(context_dir)
    return store.create_experiment(
        config=replace_secrets(complete, known),
        original_config=replace_texts(original_config, known),
        model_definition=pack_context_dir(context_dir, lambda text: replace_texts(text, known)),
        owner=user_name() if owner is None else owner,
        external_id=external_id,
        code_version=version,
    )
