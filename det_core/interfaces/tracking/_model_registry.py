"""Interface of the model registry, which keeps good checkpoints under names as numbered versions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from det_core.interfaces.model_records import ModelRecord, ModelSort, ModelVersionRecord
from det_core.interfaces.tracking._rights import Reach, reads, writes


class ModelRegistry(ABC):
    """The part of a `TrackingStore` that handles models.

    A ``name`` argument is the name of a model, or its id as an int. Methods raise the errors of the store, among them
    `RecordNotFound` for an unknown model or version.
    """

    @writes(Reach.ANYTHING, creates=True)
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
    ) -> ModelRecord:
        """Add a model without versions.

        Args:
            name: unique name.
            description: what the model is for.
            metadata: JSON-compatible metadata.
            labels: labels to find it by.
            notes: free text.
            owner: name of the user who creates it.

        Raises:
            RecordExists: a model of this name exists.
            ValueError: the name is empty, begins or ends with a space, contains a slash, or is a number.
        """

    @reads
    @abstractmethod
    def model(self, name: str | int) -> ModelRecord:
        """Return one model."""

    @reads
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
        offset: int = 0,
        brief: bool = False,
    ) -> list[ModelRecord]:
        """Return the models that match.

        Args:
            sort_by: sort key.
            descending: reverse the sort order.
            name: include only names that contain this text, ignoring case.
            description: include only descriptions that contain this text, ignoring case.
            archived: include only archived (True) or only other models (False).
            limit: maximum number of models.
            offset: number of models to skip.
            brief: leave out metadata, and all but the first 10,000 characters of texts, so that a list takes little
                memory.
        """

    @writes(Reach.MODELS)
    @abstractmethod
    def edit_model(
        self,
        name: str | int,
        *,
        description: str | None = None,
        notes: str | None = None,
        labels: Sequence[str] | None = None,
        archived: bool | None = None,
    ) -> ModelRecord:
        """Replace the values that are not None.

        Returns:
            The model after the change.
        """

    @writes(Reach.MODELS)
    @abstractmethod
    def edit_model_metadata(
        self, name: str | int, *, add: Mapping[str, Any] | None = None, remove: Collection[str] = ()
    ) -> ModelRecord:
        """Remove top-level keys of the metadata, then add or replace others.

        Returns:
            The model after the change.
        """

    @writes(needs_owner=True)
    @abstractmethod
    def delete_model(self, name: str | int) -> None:
        """Delete the model and its versions. Their checkpoints are kept."""

    @writes(Reach.MODELS)
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
    ) -> ModelVersionRecord:
        """Register a checkpoint as the next version of the model.

        The checkpoint cannot be deleted as long as the version exists.

        Args:
            checkpoint_uuid: a COMPLETED checkpoint.
            version_name: short name of the version.
            comment: comment on the version.
            notes: free text.
            metadata: JSON-compatible metadata.
            labels: labels to find it by.
            owner: name of the user who registers it.

        Raises:
            TrackingError: the checkpoint is not COMPLETED, or the model is archived.
        """

    @reads
    @abstractmethod
    def model_versions(
        self, name: str | int, *, limit: int | None = None, brief: bool = False
    ) -> list[ModelVersionRecord]:
        """Return the versions of a model, oldest first.

        Args:
            name: name or id of the model.
            limit: maximum number of versions, the latest ones.
            brief: leave out metadata and the ends of texts, as `models` does.
        """

    @reads
    @abstractmethod
    def model_version(self, name: str | int, version: int) -> ModelVersionRecord:
        """Return one version of a model."""

    @writes(Reach.MODELS)
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
    ) -> ModelVersionRecord:
        """Replace the values that are not None.

        Returns:
            The version after the change.
        """

    @writes(needs_owner=True)
    @abstractmethod
    def delete_model_version(self, name: str | int, version: int) -> None:
        """Delete the version. Its checkpoint is kept."""

    @reads
    @abstractmethod
    def registered_checkpoints(self, experiment_id: int) -> set[str]:
        """Return the uuids of the experiment's checkpoints that are versions of models."""
