"""Marker by which nodes find out whether they see the directory of the checkpoints."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from det_core.config import CheckpointStorageConfig
from det_core.errors import LaunchError
from det_core.interfaces.launcher import LaunchRequest
from det_core.owner_process import OwnerProcess
from det_core.storage.config import DirectoryConfig, SharedFSConfig


@contextmanager
def mark_mounted_storage(request: LaunchRequest) -> Iterator[Path | None]:
    """Keep a file with a unique name in the directory of the checkpoints while the block runs.

    Args:
        request: the launch request, whose trial names the directory.

    Yields:
        The file, or None if the checkpoints of the trial are in an object store.

    Raises:
        LaunchError: the directory cannot be written.
    """
    block = request.info.get("trial.json", {}).get("config", {}).get("checkpoint_storage")
    options = CheckpointStorageConfig.model_validate(block).options if block else None
    if not isinstance(options, DirectoryConfig | SharedFSConfig):
        yield None
        return
    try:
        options.base.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=".det-launch-", dir=options.base)
    except OSError as error:
        raise LaunchError(f"cannot write to the directory of checkpoint_storage: {error}") from error
    os.close(descriptor)
    marker, owner = Path(name), OwnerProcess()
    try:
        yield marker
    finally:
        if owner.is_here:  # not in a forked child that leaves the block
            marker.unlink(missing_ok=True)


def explain_unmounted_storage(node: str) -> str:
    """Return the error about a node that does not see the marker."""
    advice = "use a bucket (type s3, gcs or azure), or a directory that all nodes mount"
    return f"the node {node} does not see the directory of checkpoint_storage; {advice}"
