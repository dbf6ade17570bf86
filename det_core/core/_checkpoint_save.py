"""What one rank contributes to a checkpoint: found, agreed upon with the other ranks, and stored."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from det_core import storage
from det_core.core._checkpoint_merge import Offer, compare, owners
from det_core.core._together import Group
from det_core.errors import StorageError
from det_core.interfaces.storage import StorageManager
from det_core.scratch import scratch_directory

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def plain(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """A copy as JSON gives it back.

    Raises:
        TypeError: JSON cannot hold it.
    """
    try:
        copied: dict[str, Any] = json.loads(json.dumps(dict(metadata or {})))
    except (TypeError, ValueError) as error:
        raise TypeError(f"checkpoint metadata {metadata!r} must fit into JSON: {error}") from error
    return copied


def offer(directory: str | os.PathLike[str] | None, selector: storage.Selector | None, *, shard: bool) -> Offer | None:
    """What there is to upload; None: nothing. Errors as for `CheckpointContext.upload`."""
    if directory is None:
        if not shard or selector is not None:
            what = "selector" if shard else "upload(shard=False)"
            raise RuntimeError(f"{what} without ckpt_dir: pass a directory; only with shard=True it may be None")
        return None
    path = Path(directory)
    if not path.is_dir():
        raise ValueError(f"ckpt_dir {str(directory)!r} is no directory")
    return Offer(_sizes(storage.scan(path, selector)), None if selector else _identity(path))


def written(directory: Path, failure: BaseException | None) -> Offer:
    """What the body of ``store_path`` wrote, or the error that it raised."""
    if failure is not None:
        raise failure
    return Offer(_sizes(storage.scan(directory)))


def share(group: Group, offers: Sequence[Offer | None], directory: Path) -> dict[str, Path]:
    """The files that this rank has to store: of those that several have, the lowest does.

    Raises:
        RuntimeError: nobody has any, or they conflict; on all ranks.
    """
    if all(offer is None for offer in offers):
        raise RuntimeError("no rank passed a ckpt_dir; at least one must")
    found = owners([offer or Offer({}) for offer in offers])
    doubtful = [path for path, ranks in found.items() if len(ranks) > 1 and not path.endswith("/")]
    if doubtful:
        mine = [path for path in doubtful if group.index in found[path]]
        compare(group.together(lambda: {path: storage.checksum(directory / path) for path in mine}))
    return {path: directory / path for path, ranks in found.items() if ranks[0] == group.index}


@contextmanager
def workspace(store: StorageManager, storage_id: str, group: Group, *, shard: bool) -> Iterator[Path]:
    """An empty directory to write a checkpoint into: in the store itself if it is mounted."""
    local = store.local_path(storage_id)
    if local is None:
        with scratch_directory("checkpoint") as scratch:
            yield scratch
        return
    directory = local / f".rank-{group.rank}" if shard else local
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"cannot write checkpoints to {directory}: {error.strerror}; mend the permissions, "
            "or choose another checkpoint_storage"
        ) from error
    yield directory


def take(
    store: StorageManager, storage_id: str, files: Mapping[str, Path], directory: Path
) -> dict[str, storage.Entry]:
    """Store files that were written into a `workspace`, and leave nothing else of it in the store."""
    local = store.local_path(storage_id)
    if local is None:
        return storage.put_files(store, storage_id, files)
    entries = storage.adopt_files(store, storage_id, files, local)
    if directory != local:
        shutil.rmtree(directory)
    return entries


def _sizes(files: Mapping[str, Path]) -> dict[str, int]:
    return {name: 0 if name.endswith("/") else path.stat().st_size for name, path in files.items()}


def _identity(directory: Path) -> tuple[str, int, int]:
    """The same for the same directory seen by processes of one host, containers included."""
    status = directory.stat()
    host = _BOOT_ID.read_text() if _BOOT_ID.exists() else socket.gethostname()
    return host, status.st_dev, status.st_ino
