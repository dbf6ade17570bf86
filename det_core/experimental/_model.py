"""The model registry as objects."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Any

from det_core.errors import RecordNotFound
from det_core.experimental._checkpoint import Checkpoint
from det_core.experimental._record import Recorded, open_record
from det_core.interfaces import models
from det_core.interfaces.models import ModelSort

_LATEST = (0, -1)
"""Numbers of `Model.get_version` that stand for the latest."""


class ModelSortBy(Enum):
    """What models can be listed by."""

    UNSPECIFIED = 0
    NAME = 1
    DESCRIPTION = 2
    CREATION_TIME = 4
    LAST_UPDATED_TIME = 5


class ModelOrderBy(Enum):
    """The direction of a list."""

    ASCENDING = 1
    DESCENDING = 2


class Model(Recorded):
    """A registered model: a name for checkpoints, which are its versions.

    Made by `Determined.create_model`, `get_model` and `get_models`.

    Example:
        >>> model = Determined().create_model("digits", "reads digits", {"stage": "trial"})
        >>> best = Determined().get_experiment(1).top_checkpoint()
        >>> model.register_version(best.uuid).model_version
        1
        >>> model.get_version().uuid == best.uuid
        True

    Args:
        name: unique among the models.
        description: what it is for.
        creation_time: when it was created.
        last_updated_time: when it, or a version, was changed last.
        metadata: what was noted about it.
        master: the URL of the record that it is in; empty = the embedded one.
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
        self._master = open_record(master).url

    def __repr__(self) -> str:
        return f"Model(name={self.name!r})"

    @property
    def model_id(self) -> int:
        """Its id, which no other model ever gets."""
        return self._record.id

    @property
    def labels(self) -> list[str]:
        return list(self._record.labels)

    @property
    def notes(self) -> str:
        return self._record.notes

    @property
    def archived(self) -> bool:
        return self._record.archived

    def get_version(self, version: int = 0) -> ModelVersion | None:
        """One of its versions; None if there is no such.

        Args:
            version: its number, from 1; 0 = the latest.
        """
        if version in _LATEST:
            return next(iter(self.get_versions()), None)
        try:
            found = self._store.model_version(self.name, version)
        except RecordNotFound:
            self._store.model(self.name)  # a model that is gone has no versions to ask for
            return None
        return self._versions([found])[0]

    def get_versions(self, order_by: ModelOrderBy = ModelOrderBy.DESCENDING) -> list[ModelVersion]:
        """All its versions, by number; by default the latest first."""
        oldest_first = self._versions(self._store.model_versions(self.name))
        return oldest_first[::-1] if order_by is ModelOrderBy.DESCENDING else oldest_first

    list_versions = get_versions

    def register_version(self, checkpoint_uuid: str) -> ModelVersion:
        """Make a completed checkpoint its next version. It cannot be deleted as long as it is one.

        Raises:
            RecordNotFound: there is no such checkpoint, or the model was deleted.
            TrackingError: the checkpoint is not complete, or the model is archived.
        """
        return self._versions([self._store.add_model_version(self.name, checkpoint_uuid)])[0]

    def add_metadata(self, metadata: dict[str, Any]) -> None:
        """Add keys to its metadata, or replace their values.

        Example:
            >>> model = Determined().create_model("faces", metadata={"stage": "trial"})
            >>> model.add_metadata({"stage": "production", "by": "ada"})
            >>> model.metadata
            {'stage': 'production', 'by': 'ada'}

        Args:
            metadata: what JSON can hold.

        Raises:
            TypeError: JSON cannot hold it; names the key.
        """
        self.metadata = dict(self._store.edit_model_metadata(self.name, add=metadata).metadata)

    def remove_metadata(self, keys: list[str]) -> None:
        """Remove top-level keys of its metadata, if they are there."""
        self.metadata = dict(self._store.edit_model_metadata(self.name, remove=keys).metadata)

    def set_description(self, description: str) -> None:
        self.description = self._store.edit_model(self.name, description=description).description

    def set_labels(self, labels: list[str]) -> None:
        self._store.edit_model(self.name, labels=labels)

    def set_notes(self, notes: str) -> None:
        self._store.edit_model(self.name, notes=notes)

    def archive(self) -> None:
        """Put it aside: it takes no new versions."""
        self._store.edit_model(self.name, archived=True)

    def unarchive(self) -> None:
        """Let it take new versions again."""
        self._store.edit_model(self.name, archived=False)

    def delete(self) -> None:
        """Forget it and its versions; the checkpoints stay."""
        self._store.delete_model(self.name)

    @classmethod
    def _from_record(cls, record: models.Model, master: str) -> Model:
        return cls(
            name=record.name,
            description=record.description,
            creation_time=record.creation_time,
            last_updated_time=record.last_updated_time,
            metadata=dict(record.metadata),
            master=master,
        )

    @property
    def _record(self) -> models.Model:
        return self._store.model(self.name)

    def _versions(self, records: list[models.ModelVersion]) -> list[ModelVersion]:
        checkpoints = Checkpoint._of(self._store, [self._store.checkpoint(one.checkpoint_uuid) for one in records])
        return [ModelVersion(self, *pair) for pair in zip(records, checkpoints, strict=True)]


class ModelVersion(Checkpoint):
    """A version of a model: its checkpoint, and what was noted about the version.

    Attributes:
        checkpoint: the checkpoint as such.
        model_id: the id of the model.
        name: of the version.
        comment: about the version.
        notes: about the version.
    """

    def __init__(self, model: Model, record: models.ModelVersion, checkpoint: Checkpoint) -> None:
        vars(self).update(vars(checkpoint))
        self.checkpoint = checkpoint
        self.model_id = record.model_id
        self.model_name = model.name
        self.model_version: int = record.version
        self.name = record.name
        self.comment = record.comment
        self.notes = record.notes

    def set_name(self, name: str) -> None:
        self.name = self._store.edit_model_version(self.model_id, self.model_version, version_name=name).name

    def set_notes(self, notes: str) -> None:
        self.notes = self._store.edit_model_version(self.model_id, self.model_version, notes=notes).notes

    def delete(self) -> None:
        """Forget the version; its checkpoint stays."""
        self._store.delete_model_version(self.model_id, self.model_version)


def sort_of(sort_by: ModelSortBy) -> ModelSort:
    """What the record calls it; by name if it is unspecified."""
    return ModelSort.NAME if sort_by is ModelSortBy.UNSPECIFIED else ModelSort[sort_by.name]
