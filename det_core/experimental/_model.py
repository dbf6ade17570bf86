"""SDK classes for the model registry."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Any

from det_core.core.client_events import ClientEvents
from det_core.errors import RecordNotFound
from det_core.experimental._checkpoint import Checkpoint
from det_core.experimental._shared_store import StoredObject, open_shared_store
from det_core.interfaces.model_records import ModelRecord, ModelSort, ModelVersionRecord

_LATEST = (0, -1)
"""Arguments of `Model.get_version` that stand for the latest version."""


class ModelSortBy(Enum):
    """Keys that models can be sorted by."""

    UNSPECIFIED = 0
    """The same as NAME."""
    NAME = 1
    """Name of the model."""
    DESCRIPTION = 2
    """Description of the model."""
    CREATION_TIME = 4
    """Time at which the model was created."""
    LAST_UPDATED_TIME = 5
    """Time of the latest change of the model or one of its versions."""


class ModelOrderBy(Enum):
    """Directions of a sort order."""

    ASCENDING = 1
    """Smallest or oldest first."""
    DESCENDING = 2
    """Largest or latest first."""
    ASC = ASCENDING
    DESC = DESCENDING


class Model(StoredObject):
    """A registered model, whose versions are checkpoints.

    Returned by `Determined.create_model`, `Determined.get_model` and `Determined.get_models`.

    Example:
        >>> model = Determined().create_model("digits", "reads digits", {"stage": "trial"})
        >>> best = Determined().get_experiment(1).top_checkpoint()
        >>> model.register_version(best.uuid).model_version
        1
        >>> model.get_version().uuid == best.uuid
        True

    Args:
        name: unique name.
        description: what the model is for.
        creation_time: time at which it was created.
        last_updated_time: time of the latest change of the model or one of its versions.
        metadata: metadata that users added.
        master: URL of its tracking store. An empty string stands for the embedded store.
    """

    def __init__(
        self,
        name: str,
        description: str = "",
        creation_time: datetime | None = None,
        last_updated_time: datetime | None = None,
        metadata: dict[str, Any] | None = None,
        master: str = "",
    ) -> None:
        self.name = name
        self.description = description
        self.creation_time = creation_time
        self.last_updated_time = last_updated_time
        self.metadata = metadata or {}
        self._master = open_shared_store(master).url

    @property
    def model_id(self) -> int:
        """Id of the model. It is never used for another model."""
        return self._record.id

    @property
    def labels(self) -> list[str]:
        """Labels of the model."""
        return list(self._record.labels)

    @property
    def notes(self) -> str:
        """Notes on the model."""
        return self._record.notes

    @property
    def archived(self) -> bool:
        """Whether the model is archived. An archived model takes no new versions."""
        return self._record.archived

    def get_version(self, version: int = 0) -> ModelVersion | None:
        """Return one version, or None if it does not exist.

        Args:
            version: number of the version from 1, or 0 for the latest.

        Raises:
            RecordNotFound: the model was deleted.
        """
        if version in _LATEST:
            return next(iter(self.get_versions()), None)
        try:
            found = self._store.model_version(self.name, version)
        except RecordNotFound:
            self._store.model(self.name)  # raises if the model was deleted
            return None
        return self._versions([found])[0]

    def get_versions(self, order_by: ModelOrderBy = ModelOrderBy.DESCENDING) -> list[ModelVersion]:
        """Return all versions by number, by default the latest first."""
        oldest_first = self._versions(self._store.model_versions(self.name))
        return oldest_first[::-1] if order_by is ModelOrderBy.DESCENDING else oldest_first

    list_versions = get_versions

    def register_version(self, checkpoint_uuid: str) -> ModelVersion:
        """Register a completed checkpoint as the next version.

        The checkpoint cannot be deleted as long as the version exists.

        Args:
            checkpoint_uuid: id of the checkpoint.

        Raises:
            RecordNotFound: the checkpoint does not exist, or the model was deleted.
            TrackingError: the checkpoint is not complete, or the model is archived.
        """
        added = self._store.add_model_version(self.name, checkpoint_uuid)
        with ClientEvents(self._store) as client:
            client.model_version_registered(self.name, added)
        return self._versions([added])[0]

    def add_metadata(self, metadata: dict[str, Any]) -> None:
        """Add keys to the metadata, or replace their values.

        Example:
            >>> model = Determined().create_model("faces", metadata={"stage": "trial"})
            >>> model.add_metadata({"stage": "production", "by": "ada"})
            >>> model.metadata
            {'stage': 'production', 'by': 'ada'}

        Args:
            metadata: JSON-compatible metadata.

        Raises:
            TypeError: a value is not JSON-compatible. The message names the key.
        """
        self.metadata = dict(self._store.edit_model_metadata(self.name, add=metadata).metadata)

    def remove_metadata(self, keys: list[str]) -> None:
        """Remove top-level keys of the metadata. Keys that do not exist are ignored."""
        self.metadata = dict(self._store.edit_model_metadata(self.name, remove=keys).metadata)

    def set_description(self, description: str) -> None:
        """Replace the description."""
        self.description = self._store.edit_model(self.name, description=description).description

    def set_labels(self, labels: list[str]) -> None:
        """Replace the labels."""
        self._store.edit_model(self.name, labels=labels)

    def set_notes(self, notes: str) -> None:
        """Replace the notes."""
        self._store.edit_model(self.name, notes=notes)

    def archive(self) -> None:
        """Archive the model, so that it takes no new versions."""
        self._store.edit_model(self.name, archived=True)

    def unarchive(self) -> None:
        """Allow new versions again."""
        self._store.edit_model(self.name, archived=False)

    def delete(self) -> None:
        """Delete the model and its versions. The checkpoints are kept."""
        self._store.delete_model(self.name)

    @classmethod
    def _from_record(cls, record: ModelRecord, master: str) -> Model:
        return cls(
            name=record.name,
            description=record.description,
            creation_time=record.creation_time,
            last_updated_time=record.last_updated_time,
            metadata=dict(record.metadata),
            master=master,
        )

    @property
    def _record(self) -> ModelRecord:
        return self._store.model(self.name)

    def _identity(self) -> dict[str, Any]:
        return {"name": self.name} | ({"description": self.description} if self.description else {})

    def _facts(self) -> dict[str, Any]:
        return {"versions": len(self._store.model_versions(self.name)), **({"archived": True} if self.archived else {})}

    def _versions(self, records: list[ModelVersionRecord]) -> list[ModelVersion]:
        checkpoints = Checkpoint._of(self._store, [self._store.checkpoint(one.checkpoint_uuid) for one in records])
        return [ModelVersion(self, *pair) for pair in zip(records, checkpoints, strict=True)]


class ModelVersion(Checkpoint):
    """A version of a model, with the attributes and methods of its checkpoint.

    Attributes:
        checkpoint: checkpoint without the version.
        model_id: id of the model.
        name: name of the version.
        comment: comment on the version.
        notes: notes on the version.
    """

    def __init__(self, model: Model, record: ModelVersionRecord, checkpoint: Checkpoint) -> None:
        vars(self).update(vars(checkpoint))
        self.checkpoint = checkpoint
        self.model_id = record.model_id
        self.model_name = model.name
        self.model_version: int = record.version
        self.name = record.name
        self.comment = record.comment
        self.notes = record.notes

    def set_name(self, name: str) -> None:
        """Replace the name of the version."""
        self.name = self._store.edit_model_version(self.model_id, self.model_version, version_name=name).name

    def set_notes(self, notes: str) -> None:
        """Replace the notes on the version."""
        self.notes = self._store.edit_model_version(self.model_id, self.model_version, notes=notes).notes

    def delete(self) -> None:
        """Delete the version. Its checkpoint is kept."""
        self._store.delete_model_version(self.model_id, self.model_version)


def to_model_sort(sort_by: ModelSortBy) -> ModelSort:
    """Return the store's name of a sort key. Unspecified sorts by name."""
    return ModelSort.NAME if sort_by is ModelSortBy.UNSPECIFIED else ModelSort[sort_by.name]
