"""Saving and restoring checkpoints: the store and the record kept in agreement."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from det_core import events, storage
from det_core.errors import CheckpointNotFound
from det_core.interfaces.storage import StorageManager
from det_core.interfaces.tracking import Run, TrackingStore
from det_core.plugins import emit


class CheckpointContext:
    """Saves and restores directories under a random id.

    A checkpoint is visible only once it is complete, and your own directories are never changed.
    """

    def __init__(
        self,
        store: TrackingStore,
        storage_manager: StorageManager,
        run: Run,
        storage_record: Mapping[str, Any],
        *,
        require_steps: bool,
        flush: Callable[[], None],
    ) -> None:
        self._store = store
        self._storage = storage_manager
        self._run = run
        self._storage_record = storage_record
        self._require_steps = require_steps
        self._flush = flush

    def upload(
        self,
        ckpt_dir: str | Path,
        metadata: Mapping[str, Any] | None = None,
        *,
        selector: Callable[[str], bool] | None = None,
    ) -> str:
        """Store the contents of a directory.

        Args:
            ckpt_dir: an existing directory; it is only read.
            metadata: JSON-able; under a runner it must have the integer ``steps_completed``.
            selector: takes a path relative to the directory (directories end in ``/``) and says
                whether to store it.

        Returns:
            The checkpoint's storage id.

        Raises:
            ValueError: ``metadata`` or ``ckpt_dir`` is not as described; nothing was stored.
            StorageError: the storage refused; nothing is visible.
        """
        steps = self._steps_completed(metadata)
        if not Path(ckpt_dir).is_dir():
            raise ValueError(f"ckpt_dir {str(ckpt_dir)!r} is no directory")
        files = storage.scan(Path(ckpt_dir), selector)
        storage_id = self._begin()
        resources = storage.save(self._storage, storage_id, files, metadata or {})
        self._complete(storage_id, steps, resources, metadata or {})
        return storage_id

    @contextmanager
    def store_path(self, metadata: Mapping[str, Any] | None = None) -> Iterator[tuple[Path, str]]:
        """Yield (an empty directory to write into, the storage id); the checkpoint is made on leaving.

        If the body raises, there is no checkpoint and what was written is removed.
        Arguments and errors as for `upload`.
        """
        steps = self._steps_completed(metadata)
        storage_id = self._begin()
        local = self._storage.local_path(storage_id)
        path = local or Path(tempfile.mkdtemp(prefix="det-checkpoint-"))
        try:
            path.mkdir(parents=True, exist_ok=True)
            yield path, storage_id
            if local:
                resources = storage.finish(self._storage, storage_id, path, metadata or {})
            else:
                resources = storage.save(self._storage, storage_id, storage.scan(path), metadata or {})
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise
        if not local:
            shutil.rmtree(path)
        self._complete(storage_id, steps, resources, metadata or {})

    def download(self, storage_id: str, ckpt_dir: str | Path, *, selector: Callable[[str], bool] | None = None) -> None:
        """Copy a checkpoint into a directory, which is created, and verify it against its checksums.

        Raises:
            CheckpointNotFound: no complete checkpoint has this id.
            CheckpointCorrupt: a file differs from what was saved.
        """
        storage.restore(self._storage, storage_id, Path(ckpt_dir), selector=selector)

    @contextmanager
    def restore_path(self, storage_id: str, *, selector: Callable[[str], bool] | None = None) -> Iterator[Path]:
        """Yield a verified directory with the checkpoint's files, to be read only.

        It is the stored directory itself where the storage is a mounted file system, else a
        temporary copy. Errors as for `download`.
        """
        local = self._storage.local_path(storage_id)
        if local:
            storage.verify_in_place(self._storage, storage_id, local)
            yield local
            return
        with tempfile.TemporaryDirectory(prefix="det-checkpoint-") as scratch:
            self.download(storage_id, scratch, selector=selector)
            yield Path(scratch)

    def get_metadata(self, storage_id: str) -> dict[str, Any]:
        """The metadata that the checkpoint was saved with."""
        return storage.metadata(self._storage, storage_id)

    def delete(self, storage_id: str) -> None:
        """Remove the checkpoint from storage and mark it so in the record.

        Raises:
            CheckpointNotFound: the storage has nothing under this id.
        """
        if not self._storage.list(storage_id):
            raise CheckpointNotFound(f"there is no checkpoint {storage_id} in this storage")
        storage.delete(self._storage, storage_id)
        self._store.delete_checkpoint(storage_id)
        emit(events.CheckpointDeleted(storage_id=storage_id))

    def _steps_completed(self, metadata: Mapping[str, Any] | None) -> int | None:
        steps = (metadata or {}).get("steps_completed")
        if isinstance(steps, int) or (steps is None and not self._require_steps):
            return steps
        raise ValueError(
            f"checkpoint metadata {dict(metadata or {})!r} needs the integer 'steps_completed', "
            "for example {'steps_completed': 100}"
        )

    def _begin(self) -> str:
        storage_id = str(uuid.uuid4())
        self._store.begin_checkpoint(
            storage_id, trial_id=self._run.trial_id, run_id=self._run.run_id, storage=self._storage_record
        )
        return storage_id

    def _complete(
        self, storage_id: str, steps: int | None, resources: Mapping[str, int], metadata: Mapping[str, Any]
    ) -> None:
        self._flush()
        self._store.complete_checkpoint(
            storage_id, run_id=self._run.run_id, steps_completed=steps, resources=resources, metadata=metadata
        )
        emit(
            events.CheckpointSaved(
                trial_id=self._run.trial_id, storage_id=storage_id, steps_completed=steps, resources=resources
            )
        )
