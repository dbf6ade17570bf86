"""Saving and restoring checkpoints: the store and the record kept in agreement, and all ranks with each other."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Any

from det_core import events, plugins, storage
from det_core.core import _checkpoint_restore as restoring
from det_core.core import _checkpoint_save as saving
from det_core.core._checkpoint_merge import merge_metadata
from det_core.core._checkpoint_record import Recorder
from det_core.core._distributed import DistributedContext
from det_core.core._together import Group, alone, everyone, this_host
from det_core.errors import CheckpointNotFound, RecordNotFound
from det_core.interfaces.storage import StorageManager
from det_core.interfaces.tracking import MOST_STEPS, Run, TrackingStore

_log = logging.getLogger("det.core")


class DownloadMode(str, Enum):
    """How the workers of one host get a checkpoint."""

    LocalWorkersShareDownload = "LOCAL_WORKERS_SHARE_DOWNLOAD"
    """All of them call; the one of local rank 0 gets what any of them selects, and all wait for it."""
    NoSharedDownload = "NO_SHARED_DOWNLOAD"
    """Any of them may call, and gets what it selects by itself."""


class CheckpointContext:
    """Saves and restores directories under a random id.

    A checkpoint is visible only once it is complete, and your own directories are never changed. Arguments are
    checked before the first byte moves. Where several ranks call together, either all of them succeed, or all of
    them raise and nothing is visible: those that did nothing wrong raise `RankFailed`.
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
    ) -> None:
        self._store = store
        self._storage = storage_manager
        self._recorder = Recorder(store, storage_manager, run, storage_record, flush, on_saved)
        self._distributed = distributed
        self._require_steps = require_steps
        self._warned = False

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
            ckpt_dir: an existing directory; it is only read. None with ``shard``: this rank has nothing to store.
            metadata: JSON-able; under a runner it must have the integer ``steps_completed``. With ``shard``, that of
                all ranks is united: mappings recursively, and what several ranks pass must be equal.
            shard: False: only the chief calls. True: all ranks call, and the checkpoint is the union of their
                directories. A directory that several ranks pass is stored once, unless with a selector; a file
                that several ranks have must be the same on all.
            selector: takes a path relative to the directory (empty directories end in ``/``) and says
                whether to store it. The checkpoint always gets a ``metadata.json``.

        Returns:
            The checkpoint's storage id.

        Raises:
            RuntimeError: a wrong rank calls, there is nothing to store, or the ranks' files or metadata conflict.
            ValueError: ``metadata`` or ``ckpt_dir`` is not as described; nothing was stored.
            TypeError: JSON cannot hold the metadata.
            StorageError: the storage refused, or a file changed meanwhile; nothing is visible.
            RankFailed: one of these on another rank.
        """
        group = self._savers("upload", shard)
        given = group.together(lambda: (saving.plain(metadata), saving.offer(ckpt_dir, selector, shard=shard)))
        united = self._unite([metadata for metadata, _ in given])
        files = saving.share(group, [offer for _, offer in given], Path(ckpt_dir or ""))
        storage_id = group.by_chief(self._recorder.begin)
        with self._recorder.saving(group, storage_id):
            stored = group.together(lambda: storage.put_files(self._storage, storage_id, files))
            group.by_chief(lambda: self._recorder.complete(storage_id, stored, united))
        return storage_id

    @contextmanager
    def store_path(
        self, metadata: Mapping[str, Any] | None = None, *, shard: bool = False
    ) -> Iterator[tuple[Path, str]]:
        """Yield (an empty directory to write into, the storage id); the checkpoint is made on leaving.

        If the body raises, there is no checkpoint, what was written is removed, and the other ranks raise too.
        With ``shard``, every rank has a directory of its own, on any storage, and the checkpoint is their union.
        Arguments and errors as for `upload`.
        """
        group = self._savers("store_path", shard)
        united = self._unite(group.together(lambda: saving.plain(metadata)))
        storage_id = group.by_chief(self._recorder.begin)
        with self._recorder.saving(group, storage_id), ExitStack() as space:
            directory, failure = Path(), None
            try:
                directory = space.enter_context(saving.workspace(self._storage, storage_id, group, shard=shard))
                yield directory, storage_id
            except BaseException as error:  # noqa: BLE001  # raised again once the others know
                failure = error
            offers = group.together(lambda: saving.written(directory, failure))
            files = saving.share(group, offers, directory)
            stored = group.together(lambda: saving.take(self._storage, storage_id, files, directory))
            group.by_chief(lambda: self._recorder.complete(storage_id, stored, united))

    def download(
        self,
        storage_id: str,
        ckpt_dir: str | os.PathLike[str],
        download_mode: DownloadMode = DownloadMode.LocalWorkersShareDownload,
        *,
        selector: storage.Selector | None = None,
        verify: bool = True,
    ) -> None:
        """Copy a checkpoint into a directory, which is created, and verify it against its checksums.

        Args:
            ckpt_dir: with LocalWorkersShareDownload, that of local rank 0 counts.
            selector: takes a path relative to the checkpoint and says whether to copy it. ``metadata.json``
                always is, after all others.
            verify: False: trust what the storage returns.

        Raises:
            CheckpointNotFound: no complete checkpoint has this id.
            CheckpointCorrupt: a file differs from what was saved. The tracking store marks the checkpoint ERROR, and
                under a runner the next run of the trial starts from the newest intact one.
            StorageError: the storage or ``ckpt_dir`` refused.
            RankFailed: one of these on another rank of this host.
        """
        group, source = self._readers(download_mode), self._source(storage_id)
        restoring.restore(
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
        """Yield a temporary directory with the checkpoint's verified files, to be read.

        On a mounted file system nothing is copied: they are links to the stored files, which are write-protected.
        Arguments and errors as for `download`.
        """
        group, source = self._readers(download_mode), self._source(storage_id)
        local = self._storage.local_path(storage_id)
        with restoring.restored_path(group, source, local, selector, verify=verify) as path:
            yield path

    def get_metadata(self, storage_id: str) -> dict[str, Any]:
        """The metadata that the checkpoint was saved with.

        Raises:
            CheckpointNotFound: no complete checkpoint has this id.
        """
        source = self._source(storage_id)
        with source.recording_damage():
            return source.find().metadata

    def delete(self, storage_id: str) -> None:
        """Remove the checkpoint from storage and mark it so in the record.

        Raises:
            CheckpointNotFound: the storage has nothing under this id.
        """
        if not self._storage.list(storage_id):
            raise CheckpointNotFound(f"there is no checkpoint {storage_id} in this storage")
        with suppress(RecordNotFound):  # it may belong to another record
            self._store.delete_checkpoint(storage_id)
        storage.delete(self._storage, storage_id)
        plugins.emit(events.CheckpointDeleted(storage_id=storage_id))

    def _savers(self, method: str, shard: bool) -> Group:
        if shard:
            return everyone(self._distributed)
        if self._distributed.rank != 0:
            raise RuntimeError(
                f"cannot call {method}(shard=False) from non-chief worker (rank {self._distributed.rank}); "
                "call it on rank 0 only, or with shard=True on all ranks"
            )
        return alone()

    def _readers(self, mode: DownloadMode) -> Group:
        shared = DownloadMode(mode) is DownloadMode.LocalWorkersShareDownload
        return this_host(self._distributed) if shared else alone()

    def _source(self, storage_id: str) -> restoring.Source:
        return restoring.Source(self._storage, self._store, storage_id)

    def _unite(self, metadata: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        united = merge_metadata(metadata)
        steps = united.get("steps_completed")
        if steps is None and not self._require_steps:
            if not self._warned:
                self._warned = True
                _log.warning("a checkpoint without 'steps_completed' in its metadata is recorded without its step")
        elif type(steps) is not int:
            raise ValueError(
                f"checkpoint metadata {united!r} needs the integer 'steps_completed', "
                "for example {'steps_completed': 100}"
            )
        elif not 0 <= steps <= MOST_STEPS:
            raise ValueError(f"checkpoint metadata has steps_completed {steps}; expected 0 to {MOST_STEPS}")
        return united
