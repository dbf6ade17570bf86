"""A checkpoint's row in the record: ACTIVE before the first byte, COMPLETED after the last."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from det_core import events, plugins, storage
from det_core.core._together import Group
from det_core.errors import DetError
from det_core.interfaces.storage import StorageManager
from det_core.interfaces.tracking import CheckpointState, Run, TrackingStore

_log = logging.getLogger("det.core")

Entries: TypeAlias = "Mapping[str, storage.Entry]"


@dataclass(frozen=True)
class Recorder:
    """Begins, completes and abandons checkpoints of one run."""

    store: TrackingStore
    storage: StorageManager
    run: Run
    storage_record: Mapping[str, Any]
    flush: Callable[[], None]
    """Commits every metric that was reported so far."""
    on_saved: Callable[[], None]

    def begin(self) -> str:
        """Give it an id."""
        storage_id = str(uuid.uuid4())
        self.store.begin_checkpoint(
            storage_id, trial_id=self.run.trial_id, run_id=self.run.run_id, storage=self.storage_record
        )
        return storage_id

    @contextmanager
    def saving(self, group: Group, storage_id: str) -> Iterator[None]:
        """If the body raises, what was written is removed.

        Only the chief removes: another rank that lost its peers cannot know whether the chief completed it.
        """
        try:
            yield
        except BaseException:
            if group.is_chief:
                self._abandon(storage_id)
            raise

    def complete(self, storage_id: str, stored: Sequence[Entries], metadata: Mapping[str, Any]) -> None:
        """Publish the files that the ranks stored, once every metric reported before is committed."""
        entries = {name: entry for part in stored for name, entry in part.items()}
        self.flush()
        resources = storage.publish(self.storage, storage_id, entries, metadata)
        steps = metadata.get("steps_completed")
        self.store.complete_checkpoint(
            storage_id, run_id=self.run.run_id, steps_completed=steps, resources=resources, metadata=metadata
        )
        plugins.emit(
            events.CheckpointSaved(
                trial_id=self.run.trial_id, storage_id=storage_id, steps_completed=steps, resources=resources
            )
        )
        self.on_saved()

    def _abandon(self, storage_id: str) -> None:
        try:
            if self.store.checkpoint(storage_id).state is not CheckpointState.COMPLETED:
                storage.delete(self.storage, storage_id)
                self.store.delete_checkpoint(storage_id)
        except DetError as error:
            _log.warning(
                "checkpoint %s failed, and what was written of it is still there (%s); later, to remove it: "
                "det checkpoint gc --orphans",
                storage_id,
                error,
            )
