"""The model registry: names under which people keep their good checkpoints, as numbered versions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Model:
    id: int
    name: str
    description: str
    notes: str
    owner: str
    metadata: Mapping[str, Any]
    labels: Sequence[str]
    archived: bool
    """Whether it is put aside: it takes no new versions."""
    creation_time: datetime
    last_updated_time: datetime
    """When the model, or one of its versions, was changed last."""
    versions: int
    """How many there are."""


@dataclass(frozen=True, kw_only=True)
class ModelVersion:
    model_id: int
    version: int
    """From 1, in the order of registration; a number is never given twice."""
    checkpoint_uuid: str
    name: str
    comment: str
    notes: str
    owner: str
    metadata: Mapping[str, Any]
    labels: Sequence[str]
    creation_time: datetime
    last_updated_time: datetime


class ModelSort(str, Enum):
    """What models can be listed by."""

    NAME = "name"
    DESCRIPTION = "description"
    CREATION_TIME = "creation_time"
    LAST_UPDATED_TIME = "last_updated_time"


class ModelRegistry(ABC):
    """The part of a `det_core.interfaces.tracking.TrackingStore` that knows models.

    ``name`` is a model's name, or its id as an int. Errors as there, and `RecordNotFound` for what there is not.
    """

    @abstractmethod
    def create_model(
        self,
        name: str,
        *,
        description: str = "",
        metadata: Mapping[str, Any] | None = None,
        labels: Sequence[str] = (),
        notes: str = "",
        owner: str = "",
    ) -> Model:
        """Add a model without versions.

        Raises:
            RecordExists: there is one of this name.
            ValueError: the name is empty, begins or ends with a space, has a slash, or is a number.
        """

    @abstractmethod
    def model(self, name: str | int) -> Model: ...

    @abstractmethod
    def models(
        self,
        *,
        sort_by: ModelSort = ModelSort.NAME,
        descending: bool = False,
        name: str = "",
        description: str = "",
        archived: bool | None = None,
        limit: int | None = None,
    ) -> list[Model]:
        """Those whose name and description contain these texts, in upper or lower case; None: archived or not."""

    @abstractmethod
    def edit_model(
        self,
        name: str | int,
        *,
        description: str | None = None,
        notes: str | None = None,
        labels: Sequence[str] | None = None,
        archived: bool | None = None,
    ) -> Model:
        """Replace what is not None; the model as it is then."""

    @abstractmethod
    def edit_model_metadata(
        self, name: str | int, *, add: Mapping[str, Any] | None = None, remove: Collection[str] = ()
    ) -> Model:
        """Remove keys, then add or replace others, at the top level; the model as it is then."""

    @abstractmethod
    def delete_model(self, name: str | int) -> None:
        """Forget the model and its versions; their checkpoints stay."""

    @abstractmethod
    def add_model_version(
        self,
        name: str | int,
        checkpoint_uuid: str,
        *,
        version_name: str = "",
        comment: str = "",
        notes: str = "",
        metadata: Mapping[str, Any] | None = None,
        labels: Sequence[str] = (),
        owner: str = "",
    ) -> ModelVersion:
        """Register a checkpoint as the model's next version. It cannot be deleted as long as the version is there.

        Raises:
            TrackingError: the checkpoint is not COMPLETED, or the model is archived.
        """

    @abstractmethod
    def model_versions(self, name: str | int) -> list[ModelVersion]:
        """Oldest first."""

    @abstractmethod
    def model_version(self, name: str | int, version: int) -> ModelVersion: ...

    @abstractmethod
    def edit_model_version(
        self,
        name: str | int,
        version: int,
        *,
        version_name: str | None = None,
        comment: str | None = None,
        notes: str | None = None,
        labels: Sequence[str] | None = None,
    ) -> ModelVersion:
        """Replace what is not None; the version as it is then."""

    @abstractmethod
    def delete_model_version(self, name: str | int, version: int) -> None:
        """Forget the version; its checkpoint stays."""

    @abstractmethod
    def registered_checkpoints(self, experiment_id: int) -> set[str]:
        """The uuids of the experiment's checkpoints that are versions of models."""
