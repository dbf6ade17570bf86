"""Event streams of commands and calls of the SDK."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from det_core import events
from det_core.core.event_stream import EventStream, make_fetch_files
from det_core.core.recorded_storage import open_checkpoint_storage
from det_core.errors import DetError

if TYPE_CHECKING:
    from typing_extensions import Self

    from det_core.interfaces.model_records import ModelVersionRecord
    from det_core.interfaces.records import CheckpointRecord, TrialRecord
    from det_core.interfaces.tracking import TrackingStore

_log = logging.getLogger("det.observers")


class ClientEvents:
    """Event streams of the experiments that a command or a call of the SDK works on, opened when they are needed.

    At the end of the context, it ends their observers.

    Args:
        store: the tracking store.
    """

    def __init__(self, store: TrackingStore) -> None:
        self._store = store
        self._streams: dict[int, EventStream] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for stream in self._streams.values():
            stream.close()
        self._streams = {}

    def checkpoint_deleted(self, checkpoint: CheckpointRecord) -> None:
        """Send the event that a checkpoint was deleted.

        Args:
            checkpoint: the checkpoint.
        """
        self._stream(checkpoint, self._store.trial(checkpoint.trial_id)).checkpoint_deleted(checkpoint)

    def model_version_registered(self, model: str, version: ModelVersionRecord) -> None:
        """Send the event that a checkpoint was registered as a version of a model.

        Args:
            model: name of the model.
            version: the version.
        """
        checkpoint = self._store.checkpoint(version.checkpoint_uuid)
        trial = self._store.trial(checkpoint.trial_id)
        stream = self._stream(checkpoint, trial)
        if not stream.has_receivers(events.ModelVersionRegistered):
            return
        try:
            location = open_checkpoint_storage(self._store, checkpoint, chosen=True).location(checkpoint.uuid)
        except DetError as error:  # the version is registered already
            _log.warning("the location of checkpoint %s is unknown: %s", checkpoint.uuid, error)
            location = ""
        stream.emit(
            events.ModelVersionRegistered,
            trial_id=trial.id,
            run_id=checkpoint.run_id,
            hparams=trial.hparams,
            model=model,
            version=version.version,
            storage_id=checkpoint.uuid,
            location=location,
        )

    def _stream(self, checkpoint: CheckpointRecord, trial: TrialRecord) -> EventStream:
        stream = self._streams.get(trial.experiment_id)
        if stream is None:
            stream = self._streams[trial.experiment_id] = EventStream(
                "client",
                cluster_id=self._store.cluster_id,
                experiment_id=trial.experiment_id,
                config=self._store.experiment(trial.experiment_id).config,
                fetch_files=make_fetch_files(lambda: open_checkpoint_storage(self._store, checkpoint, chosen=True)),
            )
            stream.open()
        return stream
