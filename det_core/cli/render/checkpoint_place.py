"""Places of checkpoints, which may be directories of other machines."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from det_core.errors import DetError
from det_core.interfaces.records import CheckpointRecord
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import is_server_url

THIS_MACHINE = "this machine"
OTHER_MACHINE = "another machine"


@dataclass(frozen=True)
class CheckpointPlace:
    """Place of the files of a checkpoint."""

    path: str
    """Directory, or a description of the storage if it is in no mounted file system."""
    machine: str | None = None
    """Machine with the directory: `THIS_MACHINE`, the URL of a det server, or `OTHER_MACHINE` if neither has it.
    None for a bucket, and without a server."""

    def __str__(self) -> str:
        return f"{self.path} on {self.machine}" if self.machine else self.path


def locate_checkpoint(store: TrackingStore, checkpoint: CheckpointRecord) -> CheckpointPlace:
    """Find the files of a checkpoint.

    Args:
        store: the tracking store. A det server is asked whether it has files that are not here.
        checkpoint: the checkpoint.
    """
    from det_core.core.recorded_storage import describe_storage, open_checkpoint_storage

    try:
        directory = open_checkpoint_storage(store, checkpoint, chosen=True).local_path(checkpoint.uuid)
    except DetError:
        directory = None
    if directory is None:
        return CheckpointPlace(describe_storage(checkpoint.storage))
    if not is_server_url(store.url):
        return CheckpointPlace(str(directory))
    if directory.is_dir():
        return CheckpointPlace(str(directory), THIS_MACHINE)
    return CheckpointPlace(str(directory), store.url if _is_served(store.url, checkpoint.uuid) else OTHER_MACHINE)


def _is_served(url: str, uuid: str) -> bool:
    from det_core.tracking.remote import ServedStorage, ServerConnection

    with closing(ServerConnection(url)) as server:
        return bool(ServedStorage(server).list(uuid))
