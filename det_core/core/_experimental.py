"""Experimental parts of the Core API, which may still change."""

from __future__ import annotations

from typing import Any

from det_core.interfaces.records import Run
from det_core.interfaces.tracking import TrackingStore


class ExperimentalCoreContext:
    """Links from this trial to checkpoints of other trials, such as those that it runs inference with.

    The metrics of this trial then count among the metrics of the checkpoint.
    """

    def __init__(self, store: TrackingStore, run: Run) -> None:
        self._store = store
        self._run = run

    def report_task_using_checkpoint(self, checkpoint: Any) -> None:
        """Record that this trial uses a checkpoint.

        Args:
            checkpoint: the checkpoint's storage id, or an object with the attribute ``uuid``.
        """
        uuid = checkpoint if isinstance(checkpoint, str) else checkpoint.uuid
        self._store.add_trial_source(self._run.trial_id, self._run.run_id, uuid)

    def report_task_using_model_version(self, model_version: Any) -> None:
        """Record that this trial uses a version of a registered model.

        Args:
            model_version: an object with ``checkpoint``, ``model_id`` and ``model_version``.
        """
        self._store.add_trial_source(
            self._run.trial_id,
            self._run.run_id,
            model_version.checkpoint.uuid,
            model_id=model_version.model_id,
            model_version=model_version.model_version,
        )
