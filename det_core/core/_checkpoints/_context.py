"""Saving and restoring of checkpoints.

Checkpoint storage and the tracking store stay consistent with each other, and all ranks have the same outcome.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

from det_core import events, storage
from det_core.core._checkpoints import _restore as restoring
from det_core.core._checkpoints import _save as saving
from det_core.core._checkpoints._merge import merge_metadata
from det_core.core._checkpoints._record import CheckpointRecorder
from det_core.core._distributed import DistributedContext
from det_core.core._metric_conversion import to_steps
from det_core.core.event_stream import EventStream
from det_core.core.rank_agreement import RankGroup, all_ranks_group, local_ranks_group, single_rank_group
from det_core.disk_errors import explain_disk_error
from det_core.errors import StorageError
from det_core.interfaces.records import Run
from det_core.interfaces.storage import StorageManager
from det_core.interfaces.tracking import TrackingStore
from det_core.owner_process import OwnerProcess
from det_core.tracking import is_server_url

_log = logging.getLogger("det.core")


class DownloadMode(str, Enum):
    """Way in which the workers of one host download a checkpoint."""

    LocalWorkersShareDownload = "LOCAL_WORKERS_SHARE_DOWNLOAD"
    """All workers of the host call. Local rank 0 downloads the files that any of them selects, and all wait for it."""
    NoSharedDownload = "NO_SHARED_DOWNLOAD"
    """Any worker may call, and downloads the files that it selects itself."""


class CheckpointContext:
    """Interface to save and restore checkpoints, which are directories with a random id.

    A checkpoint is visible only once it is complete. Your own directories are never changed. Arguments are checked
    before any file is stored. If several ranks call together, either all of them succeed, or all of them raise and
    the checkpoint does not become visible. Ranks without an error of their own raise `RankFailed`.
    """

    def __init__(
        self,
        store: TrackingStore,
        storage_manager: StorageManager,
        run: Run,
        storage_record: Mapping[str, Any],
        *,
        distributed: DistributedContext,
        require_steps: bool,
        flush: Callable[[], None],
        on_saved: Callable[[], None] = lambda: None,
        stream: EventStream,
    ) -> None:
        from det_core.core._checkpoints._free_space import FreeSpaceCheck

        self._owner = OwnerProcess("the core context")
        self._store = store
        self._storage = storage_manager
        self._recorder = CheckpointRecorder(store, storage_manager, run, storage_record, flush, on_saved, stream)
        self._stream = stream
        self._distributed = distributed
        self._require_steps = require_steps
        self._warned = False
        self._space = FreeSpaceCheck(storage_manager)

    def upload(
        self,
        ckpt_dir: str | os.PathLike[str] | None,
        metadata: Mapping[str, Any] | None = None,
        *,
        shard: bool = False,
        selector: storage.Selector | None = None,
    ) -> str:
        """Store the contents of a directory.

        Args:
            ckpt_dir: an existing directory, which is only read. Symbolic links count as what they point to, which must
                be inside if it is a directory. With ``shard``, None means that this rank has
                nothing to store.
            metadata: JSON-compatible mapping. Under a runner it must have the integer ``steps_completed``. With
                ``shard``, the mappings of all ranks are merged recursively, and values that several ranks pass must
                be equal.
            shard: if False, only the chief calls. If True, all ranks call, and the checkpoint is the union of their
                directories. A directory that several ranks pass is stored once, unless they pass a selector. A file
                that several ranks have must be the same on all of them.
            selector: takes a path relative to the directory and returns whether to store it. Paths of directories
                end in ``/``. The contents of a directory are stored if they are selected, even if it is not. The
                checkpoint always gets a ``metadata.json``, so one of your own at the top is an error.

        Returns:
            The checkpoint's storage id.

        Raises:
            RuntimeError: the wrong rank or a forked child calls, there is nothing to store, or the ranks' files or
                metadata conflict.
            ValueError: ``metadata`` or ``ckpt_dir`` is not as described. Nothing was stored.
            TypeError: the metadata is not JSON-compatible.
            StorageError: the storage failed, or a file changed during the upload. No checkpoint is visible.
            RankFailed: another rank raised one of these errors.
        """
        group = self._savers("upload", shard)
        given = group.together(
            lambda: (saving.copy_metadata(metadata), saving.find_rank_files(ckpt_dir, selector, shard=shard))
        )
        united = self._unite([metadata for metadata, _ in given])
        files = saving.assign_files(group, [offer for _, offer in given], Path(ckpt_dir or ""))
        storage_id = group.by_chief(self._recorder.begin)
        self._space.check(storage_id, files.values())
        with self._recorder.saving(group, storage_id):
            stored = group.together(lambda: storage.store_files(self._storage, storage_id, files))
            group.by_chief(lambda: self._recorder.complete(storage_id, stored, united))
        return storage_id

    @contextmanager
    def store_path(
        self, metadata: Mapping[str, Any] | None = None, *, shard: bool = False
    ) -> Iterator[tuple[Path, str]]:
        """Yield an empty directory to write into and the storage id, and save the checkpoint at the end of the block.

        If the block raises, there is no checkpoint, the written files are removed, and the other ranks raise too.
        With ``shard``, every rank has a directory of its own, on any storage, and the checkpoint is their union.

        Args:
            metadata: as in `upload`.
            shard: as in `upload`.

        Raises:
            RuntimeError, ValueError, TypeError, StorageError, RankFailed: as in `upload`.
        """
        group = self._savers("store_path", shard)
        united = self._unite(group.together(lambda: saving.copy_metadata(metadata)))
        storage_id = group.by_chief(self._recorder.begin)
        self._space.check(storage_id)
        with self._recorder.saving(group, storage_id), ExitStack() as space:
            directory, failure = Path(), None
            try:
                directory = space.enter_context(saving.open_workspace(self._storage, storage_id, group, shard=shard))
                yield directory, storage_id
            except BaseException as error:  # noqa: BLE001  # raised again once the other ranks know
                failure = (isinstance(error, Exception) and explain_disk_error(error, directory)) or error
            offers = group.together(lambda: saving.find_written_files(directory, failure))
            self._owner.require()
            files = saving.assign_files(group, offers, directory)
            stored = group.together(lambda: saving.store_written_files(self._storage, storage_id, files, directory))
            group.by_chief(lambda: self._recorder.complete(storage_id, stored, united))
            self._space.note_size(sum(entry.size for part in stored for entry in part.values()))

    def download(
        self,
        storage_id: str,
        ckpt_dir: str | os.PathLike[str],
        download_mode: DownloadMode = DownloadMode.LocalWorkersShareDownload,
        *,
        selector: storage.Selector | None = None,
        verify: bool = True,
    ) -> None:
        """Copy a checkpoint into a directory and verify its checksums.

        Args:
            storage_id: the checkpoint's storage id.
            ckpt_dir: the directory, which is created if necessary. With LocalWorkersShareDownload, the directory of
                local rank 0 is used.
            download_mode: which workers of a host download.
            selector: takes a path relative to the checkpoint and returns whether to copy it. ``metadata.json`` is
                always copied, after all other files.
            verify: whether to compare the files with their checksums.

        Raises:
            CheckpointNotFound: no complete checkpoint has this id.
            CheckpointCorrupt: a file differs from what was saved. The tracking store marks the checkpoint ERROR, and
                under a runner the next run of the trial starts from the newest intact one.
            StorageError: the storage cannot be read, or ``ckpt_dir`` cannot be written.
            RankFailed: another rank of this host raised one of these errors.
        """
        group, source = self._readers(download_mode), self._source(storage_id)
        restoring.restore_selected_files(
            group, source, selector, lambda found, names: found.fetch(names, Path(ckpt_dir), verify=verify)
        )

    @contextmanager
    def restore_path(
        self,
        storage_id: str,
        download_mode: DownloadMode = DownloadMode.LocalWorkersShareDownload,
        *,
        selector: storage.Selector | None = None,
        verify: bool = True,
    ) -> Iterator[Path]:
        """Yield a temporary directory with the checkpoint's verified files, for reading only.

        On a mounted file system, the directory contains links to the stored files, which are write-protected. Nothing
        is copied there.

        Args:
            storage_id: the checkpoint's storage id.
            download_mode: which workers of a host download.
            selector: as in `download`.
            verify: as in `download`.

        Raises:
            CheckpointNotFound, CheckpointCorrupt, StorageError, RankFailed: as in `download`.
        """
        group, source = self._readers(download_mode), self._source(storage_id)
        local = self._storage.local_path(storage_id)
        with restoring.restored_path(group, source, local, selector, verify=verify) as path:
            yield path

    def get_metadata(self, storage_id: str) -> dict[str, Any]:
        """Return the current metadata of the checkpoint: what it was saved with, and what was edited since.

        Args:
            storage_id: the checkpoint's storage id.

        Raises:
            CheckpointNotFound: no complete checkpoint has this id.
        """
        source = self._source(storage_id)
        with source.recording_damage():
            return source.current_metadata()

    def delete(self, storage_id: str) -> None:
        """Remove the checkpoint from its storage and mark it DELETED in the tracking store.

        It may be in another storage than this context's, also one that only a det server has. If the storage of this
        machine has nothing under the id, and the tracking store is no server's, this is not an error.

        Args:
            storage_id: the checkpoint's storage id.
        """
        row = self._source(storage_id).row()  # None if it belongs to another tracking store
        if row and (row.storage != self._recorder.storage_record or is_server_url(self._store.url)):
            from det_core.core.checkpoint_removal import remove_checkpoint  # seldom needed

            remove_checkpoint(self._store, row, chosen=True, on_deleted=self._stream.checkpoint_deleted)
            return
        stored = self._storage.list(storage_id)
        if row:
            self._store.delete_checkpoint(storage_id)
        if not stored:
            _log.info("there is no checkpoint %s in its storage, so nothing was removed", storage_id)
            return
        storage.delete_stored_files(self._storage, storage_id)
        owner = (
            {"trial_id": row.trial_id, "experiment_id": self._store.trial(row.trial_id).experiment_id} if row else {}
        )
        self._stream.emit(events.CheckpointDeleted, storage_id=storage_id, **owner)

    def _rehearse(self, directory: Path, needed: int) -> None:
        """Store the contents of a directory as a checkpoint without a row, read them back, and remove them.

        Args:
            directory: the directory.
            needed: size of a later checkpoint in bytes, for which there must be space.

        Raises:
            StorageError: the storage cannot be used, or has not enough space.
        """
        from det_core.core._checkpoints._free_space import describe_lack_of_space

        storage_id = str(uuid.uuid4())
        if lack := describe_lack_of_space(self._storage, storage_id, needed):
            raise StorageError(lack)
        storage.save_checkpoint(self._storage, storage_id, storage.scan_directory(directory), {})
        try:
            with restoring.restored_path(
                single_rank_group(),
                self._source(storage_id),
                self._storage.local_path(storage_id),
                None,
                verify=True,
            ):
                pass
        finally:
            storage.delete_stored_files(self._storage, storage_id)

    def _locate(self, storage_id: str) -> str:
        """Return the directory of a checkpoint, or its URI if users cannot read it in place."""
        return str(self._storage.local_path(storage_id) or self._storage.location(storage_id))

    def _savers(self, method: str, shard: bool) -> RankGroup:
        self._owner.require()
        if shard:
            return all_ranks_group(self._distributed)
        if self._distributed.rank != 0:
            raise RuntimeError(
                f"cannot call {method}(shard=False) from non-chief worker (rank {self._distributed.rank}); "
                "call it on rank 0 only, or with shard=True on all ranks"
            )
        return single_rank_group()

    def _readers(self, mode: DownloadMode) -> RankGroup:
        shared = DownloadMode(mode) is DownloadMode.LocalWorkersShareDownload
        return local_ranks_group(self._distributed) if shared else single_rank_group()

    def _source(self, storage_id: str) -> restoring.CheckpointSource:
        return restoring.CheckpointSource(self._storage, self._store, storage_id)

    def _unite(self, metadata: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        united = merge_metadata(metadata)
        steps = united.get("steps_completed")
        if steps is None and not self._require_steps:
            if not self._warned:
                self._warned = True
                _log.warning("a checkpoint has no 'steps_completed' in its metadata and is recorded without a step")
            return united
        if steps is None or isinstance(steps, bool):
            raise ValueError(
                f"checkpoint metadata {united!r} needs the integer 'steps_completed', "
                "for example {'steps_completed': 100}"
            )
        try:
            return {**united, "steps_completed": to_steps(steps)}
        except (TypeError, ValueError) as error:
            raise ValueError(f"wrong checkpoint metadata: {error}") from error
