"""Interface of the tracking store's record of which trial uses which checkpoint."""

from __future__ import annotations

from abc import ABC, abstractmethod

from det_core.interfaces.tracking._rights import Reach, reads, writes


class TrialSourceStore(ABC):
    """The part of a `TrackingStore` that handles the checkpoints of other trials that a trial uses."""

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
