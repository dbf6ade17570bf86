"""Interface of the checkpoints in the tracking store, and of the trials that use those of others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from det_core.interfaces.records import CheckpointRecord, CheckpointState, ScoredCheckpoint
from det_core.interfaces.tracking._rights import Reach, reads, writes


class CheckpointStore(ABC):
    """The part of a `TrackingStore` that handles checkpoints. Their files are in a `StorageManager`."""

    @writes(Reach.RUN, needs_owner=True, is_report=True)
    @abstractmethod
    def begin_checkpoint(self, uuid: str, *, trial_id: int, run_id: int, storage: Mapping[str, Any]) -> None:
        """Record an ACTIVE checkpoint before its first byte is written.

        Args:
            uuid: id of 1 to 128 letters, digits, ``-`` and ``_``, the first of which is a letter or digit.
            storage: ``checkpoint_storage`` block that it is written with.

        Raises:
            ValueError: the id has another form, or is that of the cluster, under which TensorBoard files are stored.
        """

    @writes(Reach.RUN, needs_owner=True, is_report=True)
    @abstractmethod
    def complete_checkpoint(
        self,
        uuid: str,
        *,
        run_id: int,
        steps_completed: int | None,
        resources: Mapping[str, int],
        metadata: Mapping[str, Any],
    ) -> None:
        """Change a checkpoint to COMPLETED after its last byte is stored.

        Args:
            steps_completed: number of batches trained.
            resources: stored paths mapped to sizes in bytes.
            metadata: JSON-compatible metadata.
        """

    @writes(Reach.EXPERIMENT, needs_owner=True)
    @abstractmethod
    def delete_checkpoint(
        self, uuid: str, *, only: CheckpointState | None = None, remaining: Mapping[str, int] | None = None
    ) -> bool:
        """Change a checkpoint to DELETED without resources, after its files were deleted.

        Args:
            only: change nothing if the checkpoint is in any other state.
            remaining: resources that remain. If there are some, the state becomes PARTIALLY_DELETED.

        Returns:
            Whether the state was changed.

        Raises:
            RecordInUse: the checkpoint is a version of a model. The message names the versions.
        """

    @writes(Reach.SOURCE)
    @abstractmethod
    def fail_checkpoint(self, uuid: str, error: str) -> None:
        """Change a COMPLETED checkpoint to ERROR because its files are damaged or missing.

        A checkpoint in any other state stays as it is.

        Args:
            error: reason, in one line.
        """

    @writes(Reach.EXPERIMENT)
    @abstractmethod
    def edit_checkpoint_metadata(
        self, uuid: str, *, add: Mapping[str, Any] | None = None, remove: Collection[str] = ()
    ) -> CheckpointRecord:
        """Remove top-level keys of the metadata, then add or replace others.

        The stored files do not change. Their ``metadata.json`` keeps the metadata that the checkpoint was saved with.

        Returns:
            The checkpoint after the change.
        """

    @reads
    @abstractmethod
    def checkpoint(self, uuid: str, *, brief: bool = False) -> CheckpointRecord:
        """Return one checkpoint.

        Args:
            uuid: id of the checkpoint.
            brief: leave out its storage, its files and its metadata, which may be large.
        """

    @reads
    @abstractmethod
    def checkpoints(
        self,
        *,
        experiment_id: int | None = None,
        trial_id: int | None = None,
        states: Sequence[CheckpointState] = (CheckpointState.COMPLETED,),
    ) -> list[CheckpointRecord]:
        """Return the checkpoints of one trial, of one experiment, or all, in the order in which they were begun.

        The order does not depend on clocks, so the last one of a trial is its latest even if a clock was set back.

        Args:
            states: include only these states.
        """

    @reads
    @abstractmethod
    def checkpoint_validations(
        self, *, experiment_id: int | None = None, trial_id: int | None = None, uuid: str | None = None
    ) -> dict[str, Mapping[str, Any]]:
        """Return the validation metrics at each checkpoint's batch by uuid.

        Checkpoints that were not validated at their batch are left out. A later run does not change the validation of a
        checkpoint, even if it reports the same batch again.
        """

    @reads
    @abstractmethod
    def scored_checkpoints(
        self,
        experiment_id: int,
        *,
        trial_id: int | None = None,
        states: Sequence[CheckpointState] = (CheckpointState.COMPLETED,),
        limit: int | None = None,
        brief: bool = False,
    ) -> list[ScoredCheckpoint]:
        """Return the checkpoints of an experiment, the best by the searcher's metric first.

        Equal checkpoints are sorted in the order in which they were begun. Those that were not validated come last.
        Each has the value from `checkpoint_validations`.

        Args:
            trial_id: include only checkpoints of this trial.
            states: include only these states.
            limit: maximum number of checkpoints.
            brief: leave out storage, resources and metadata, which may be large.
        """

    @writes(Reach.RUN, is_report=True)
    @abstractmethod
    def add_trial_source(
        self,
        trial_id: int,
        run_id: int,
        checkpoint_uuid: str,
        *,
        model_id: int | None = None,
        model_version: int | None = None,
    ) -> None:
        """Record that the trial uses a checkpoint of another trial, possibly as a version of a model."""

    @reads
    @abstractmethod
    def trials_using(self, checkpoint_uuid: str) -> list[int]:
        """Return the ids of the trials that were recorded to use the checkpoint, ascending."""
