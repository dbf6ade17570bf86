"""Code of experiments as their tracking store has recorded it, for loading checkpoints in another directory."""

from __future__ import annotations

import atexit
import os
import stat
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from det_core.errors import RecordNotFound
from det_core.experimental._shared_store import open_embedded_store
from det_core.home import home_directory, user_name
from det_core.interfaces.tracking import TrackingStore
from det_core.launch.context_archive import unpack_context_dir
from det_core.scratch import scratch_directory


def recorded_code(store: TrackingStore, storage_id: str, trust: bool) -> Path | None:
    """Return a directory with the code of the experiment that saved a checkpoint, or None.

    Without ``trust``, only code is returned that this user submitted to the own embedded store, because others may
    write to all other stores.

    Args:
        store: tracking store of the checkpoint.
        storage_id: id of the checkpoint.
        trust: whether code from any store may run.
    """
    try:
        experiment = store.experiment(store.trial(store.checkpoint(storage_id).trial_id).experiment_id)
    except RecordNotFound:
        return None
    own = not experiment.unmanaged and experiment.owner == user_name() and _is_embedded(store)
    if not (trust or own):
        return None
    archive = store.model_definition(experiment.id)
    return _unpacked(archive) if archive else None


def _is_embedded(store: TrackingStore) -> bool:
    """Return whether a store is the embedded one, and only this user can write to it."""
    if store.url != open_embedded_store().url:
        return False
    home = home_directory()
    found = [path.stat() for path in (home, home / "det.db")]
    return all(one.st_uid == os.getuid() and not one.st_mode & stat.S_IWOTH for one in found)


@cache
def _unpacked(archive: bytes) -> Path:
    """Return a directory with the files of an archive, which is removed when the process ends."""
    ending = ExitStack()
    atexit.register(ending.close)
    directory = ending.enter_context(scratch_directory("code"))
    unpack_context_dir(archive, directory)
    return directory
