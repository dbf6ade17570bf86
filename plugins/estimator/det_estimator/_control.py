"""The hook by which det's loop drives a session that trains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from det_core.errors import InvalidTrial
from det_core.trial import TrialLoop
from det_estimator._context import EstimatorTrialContext
from det_estimator._training import TrainingSession


class Control(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """The last of all hooks: whatever others ask for, the loop has the last word.

    Args:
        spec: the ``EstimatorSpec`` of the training graph.
        chunks: of the loop. Between two of them, while this hook advances it, everything else happens.
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
        """Batches in this chunk; None: there is no other."""
        self._coordinator: Any = None

    def begin(self) -> None:
        self._session.build(self._spec.loss, self._spec.train_op)
        self._fetches = tf.compat.v1.train.SessionRunArgs(self._session.fetches)

    def after_create_session(self, session: Any, coord: Any) -> None:
        if self._coordinator is not None:  # TensorFlow makes another if a device or a peer is gone
            raise InvalidTrial(
                f"TensorFlow lost its session at batch {self._session.batch}, for what its log says above; "
                "what was trained since the last checkpoint is lost: start the trial again"
            )
        self._coordinator = coord
        self._session.start(session)
        self._advance()

    def before_run(self, run_context: Any) -> Any:
        return self._fetches

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._rows.append({name: value.tolist() for name, value in run_values.results.items()})
        self._session.batch += 1
        if run_context.stop_requested:  # by another hook; but it is the loop that ends the session
            run_context._stop_requested = False
            self._context.set_stop_requested(True)
        if len(self._rows) == self._due or self._loop.stop():
            rows, self._rows = self._rows, []
            self._loop.trained(rows)
            self._advance()

    @property
    def finished(self) -> bool:
        """Whether the loop has ended, rather than the data."""
        return self._due is None

    def _advance(self) -> None:
        self._due = next(self._chunks, None)
        if self._due is None:
            self._coordinator.request_stop()
