"""Storage of recorded checkpoints, which is the one that the config of their experiment names.

A record may name any other one. The code of a trial may have chosen it, but whoever reports as a worker writes records,
too: its path may be that of any files of this machine, and its host a stranger.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from det_core.core._storage_block import open_storage_block, without_numbers
from det_core.errors import StorageError
from det_core.home import default_storage
from det_core.interfaces.records import CheckpointRecord
from det_core.interfaces.secrets import hide_secrets
from det_core.interfaces.storage import StorageManager
from det_core.interfaces.tracking import TrackingStore

_log = logging.getLogger("det.core")


def open_checkpoint_storage(
    store: TrackingStore, checkpoint: CheckpointRecord, *, chosen: bool = False
) -> StorageManager:
    """Open the storage of a recorded checkpoint.

    Args:
        store: the tracking store.
        checkpoint: the checkpoint.
        chosen: whether a person named this checkpoint. A storage that the config does not name is then opened, too,
            after a warning.

    Raises:
        StorageError: the config names another storage, or the storage as in `open_storage_block`.
        SecretMissing, PluginError: as in `open_storage_block`.
    """
    config = experiment_config(store, checkpoint)
    if other := find_other_storage(config, checkpoint):
        if not chosen:
            raise StorageError(
                f"checkpoint {checkpoint.uuid} is {other}; if that is true, name it yourself: "
                f"det checkpoint rm {checkpoint.uuid}"
            )
        _log.warning("checkpoint %s is %s", checkpoint.uuid, other)
    return open_storage_block(checkpoint.storage)


def find_other_storage(config: Mapping[str, Any], checkpoint: CheckpointRecord) -> str:
    """Say where a checkpoint is if the config of its experiment names another storage. Otherwise return ``""``.

    Args:
        config: the config, as from `experiment_config`.
        checkpoint: the checkpoint.
    """
    if without_numbers(checkpoint.storage) == without_numbers(_named_storage(config)):
        return ""
    return f"in {describe_storage(checkpoint.storage)}, which the config of its experiment does not name"


def experiment_config(store: TrackingStore, checkpoint: CheckpointRecord) -> Mapping[str, Any]:
    """Return the recorded config of the experiment of a checkpoint."""
    return store.experiment(store.trial(checkpoint.trial_id).experiment_id).config


def describe_storage(block: Mapping[str, Any]) -> str:
    """Return a recorded ``checkpoint_storage`` block in one line, without secrets."""
    return ", ".join(f"{key} {value}" for key, value in hide_secrets(without_numbers(block)).items()) or "no storage"


def _named_storage(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return config.get("checkpoint_storage") or default_storage()
