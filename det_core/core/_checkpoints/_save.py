"""Contribution of one rank to a checkpoint.

A rank finds its files, agrees with the other ranks on who stores which file, and stores its share.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from det_core import storage
from det_core.core._checkpoints._merge import RankFiles, check_same_content, find_owners
from det_core.core.rank_agreement import RankGroup
from det_core.disk_errors import explain_disk_error
from det_core.errors import StorageError
from det_core.interfaces.storage import StorageManager
from det_core.json_values import copy_as_json
from det_core.scratch import scratch_directory

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""Random id of this boot, the same in all containers of a host. psutil has only the boot time."""


def copy_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a copy of the metadata as it will be read from JSON.

    Raises:
        TypeError: the metadata is not JSON-compatible.
    """
    try:
        copied: dict[str, Any] = copy_as_json(dict(metadata or {}))
    except (TypeError, ValueError) as error:
        raise TypeError(f"checkpoint metadata {metadata!r} is not JSON-compatible: {error}") from error
    return copied


def find_rank_files(
    directory: str | os.PathLike[str] | None, selector: storage.Selector | None, *, shard: bool
) -> RankFiles | None:
    """Return the files that this rank uploads, or None if it has no directory.

    Args:
        directory: the directory, or None with ``shard``.
        selector: takes a path relative to the directory and returns whether to store it.
        shard: whether other ranks upload too.

    Raises:
        RuntimeError: the directory is missing although it is required.
        ValueError: the path is not a directory.
    """
    if directory is None:
        if not shard or selector is not None:
            what = "selector" if shard else "upload(shard=False)"
            raise RuntimeError(
                f"{what} without ckpt_dir: pass a directory; None is allowed only with shard=True and no selector"
            )
        return None
    path = Path(directory)
    if not path.is_dir():
        raise ValueError(f"ckpt_dir {str(directory)!r} is not a directory")
    return RankFiles(_sizes(storage.scan_directory(path, selector)), None if selector else _identity(path))


def find_written_files(directory: Path, failure: BaseException | None) -> RankFiles:
    """Return the files that the body of ``store_path`` wrote, or raise the error that it raised."""
    if failure is not None:
        raise failure
    return RankFiles(_sizes(storage.scan_directory(directory)))


def assign_files(group: RankGroup, offers: Sequence[RankFiles | None], directory: Path) -> dict[str, Path]:
    """Return the files that this rank stores. If several ranks have a file, the lowest of them stores it.

    Args:
        group: the ranks that save together.
        offers: the files of each rank, or None for a rank without a directory.
        directory: the directory of this rank.

    Raises:
        RuntimeError: no rank passed a directory, or the files of ranks conflict. All ranks raise it.
        RankFailed: another rank cannot read its files.
    """
    if all(offer is None for offer in offers):
        raise RuntimeError("no rank passed a ckpt_dir; at least one must")
    found = find_owners([offer or RankFiles({}) for offer in offers])
    doubtful = [path for path, ranks in found.items() if len(ranks) > 1 and not path.endswith("/")]
    if doubtful:
        mine = [path for path in doubtful if group.index in found[path]]
        check_same_content(group.together(lambda: {path: storage.checksum_file(directory / path) for path in mine}))
    mine = [path for path, ranks in found.items() if ranks[0] == group.index]
    return {path: storage.without_directory_links(directory, path) for path in mine}


@contextmanager
def open_workspace(manager: StorageManager, storage_id: str, group: RankGroup, *, shard: bool) -> Iterator[Path]:
    """Yield an empty directory to write a checkpoint into. It is inside the store if the store is mounted.

    Raises:
        StorageError: the directory cannot be created.
    """
    local = manager.local_path(storage_id)
    if local is None:
        with scratch_directory("checkpoint") as scratch:
            yield scratch
        return
    directory = local / f".rank-{group.rank}" if shard else local
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise explain_disk_error(error, directory) or StorageError(
            f"cannot write checkpoints to {directory}: {error.strerror}; fix the permissions, "
            "or choose another checkpoint_storage"
        ) from error
    yield directory


def store_written_files(
    manager: StorageManager, storage_id: str, files: Mapping[str, Path], directory: Path
) -> dict[str, storage.Entry]:
    """Store files that were written into a `open_workspace`, and remove the rest of a workspace inside the store.

    Args:
        manager: the checkpoint storage.
        storage_id: the checkpoint's storage id.
        files: paths of the files by name.
        directory: the workspace.
    """
    local = manager.local_path(storage_id)
    if local is None:
        return storage.store_files(manager, storage_id, files)
    entries = storage.adopt_files(manager, storage_id, files, local)
    if directory != local:
        shutil.rmtree(directory)
    return entries


def _sizes(files: Mapping[str, Path]) -> dict[str, int]:
    return {name: 0 if name.endswith("/") else path.stat().st_size for name, path in files.items()}


def _identity(directory: Path) -> tuple[str, int, int]:
    """Return the identity of a directory, which is the same for all processes and containers of a host."""
    status = directory.stat()
    host = _BOOT_ID.read_text(encoding="utf-8") if _BOOT_ID.exists() else socket.gethostname()
    return host, status.st_dev, status.st_ino
