"""Session hook through which TrialLoop controls training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from det_core.errors import InvalidTrial
from det_core.trial import TrialLoop
from det_estimator._context import EstimatorTrialContext
from det_estimator._training_session import TrainingSession


def divert_stop(run_context: Any, context: EstimatorTrialContext) -> None:
    """Let the session go on although another hook requested a stop, and ask the trial to stop instead."""
    if run_context.stop_requested:
        run_context._stop_requested = False
        context.set_stop_requested(True)


class ControlHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Session hook that runs after all others and lets the loop decide when training stops.

    Args:
        spec: the ``EstimatorSpec`` of the training graph.
        session: the session's state.
        context: the context of the trial.
        loop: the loop.
        chunks: the iterator of ``TrialLoop.chunks``. While this hook advances it, the loop reports, validates and saves
            checkpoints.
    """

    def __init__(
        self,
        spec: Any,
        session: TrainingSession,
        context: EstimatorTrialContext,
        loop: TrialLoop,
        chunks: Iterator[int],
    ) -> None:
        self._spec, self._session, self._context = spec, session, context
        self._loop, self._chunks = loop, chunks
        self._rows: list[dict[str, Any]] = []
        self._due: int | None = None
        """The number of batches in the current chunk, or None after the last one."""
        self._coordinator: Any = None

    def begin(self) -> None:
        self._session.build(self._spec.loss, self._spec.train_op)
        self._fetches = tf.compat.v1.train.SessionRunArgs(self._session.fetches)

    def after_create_session(self, session: Any, coord: Any) -> None:
        if self._coordinator is not None:  # TensorFlow makes another session if a device or a peer is gone
            raise InvalidTrial(
                f"TensorFlow lost its session at batch {self._session.batch}; its log messages above give the reason. "
                "The batches since the last checkpoint are lost: start the trial again"
            )
        self._coordinator = coord
        self._session.start(session)
        self._advance()

    def before_run(self, run_context: Any) -> Any:
        return self._fetches

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._rows.append({name: value.tolist() for name, value in run_values.results.items()})
        self._session.batch += 1
        divert_stop(run_context, self._context)  # because only the loop may end the session
        if len(self._rows) == self._due or self._loop.stop():
            rows, self._rows = self._rows, []
            self._loop.trained(rows)
            self._advance()

    @property
    def finished(self) -> bool:
        """Whether training stopped because the loop ended, and not because the data did."""
        return self._due is None

    def _advance(self) -> None:
        self._due = next(self._chunks, None)
        if self._due is None:
            self._coordinator.request_stop()
