"""Wrapper between the training loop and an adapter that records values as they pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from det_core.core import Context
from det_core.interfaces.framework import Metrics, TrialAdapter
from det_core.trial import TrialContext, TrialLoop


class RecordingAdapter:
    """Wrapper of an adapter that forwards all calls. Tests derive classes that interfere."""

    context: TrialContext

    def __init__(self, adapter: TrialAdapter) -> None:
        self.adapter = adapter
        self.values: list[Mapping[str, Any]] = []
        """All metrics and metadata that the adapter returned."""
        self.lengths = {self._lengths()}
        """All pairs of lengths that the adapter reported."""
        self.closed = 0
        """Number of calls of `close`."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.adapter, name)

    def trained(self, rows: Sequence[Metrics]) -> None:
        """Record the metrics of batches that the loop received."""
        self.values += rows
        self.lengths.add(self._lengths())

    def validate(self, stop: Callable[[], bool]) -> Metrics | None:
        metrics = self.adapter.validate(stop)
        if metrics is not None:
            self.values.append(metrics)
        return metrics

    def reduced(self) -> Metrics:
        self.values.append(self.adapter.reduced())
        return self.values[-1]

    def metadata(self) -> Mapping[str, Any]:
        self.values.append(self.adapter.metadata())
        return self.values[-1]

    def close(self) -> None:
        self.closed += 1
        self.adapter.close()

    def _lengths(self) -> tuple[int | None, int]:
        return self.adapter.batches_per_epoch, self.adapter.records_per_batch


class RecordsWeights(RecordingAdapter):
    """Witness that records the weights at the beginning of training."""

    def __init__(self, weights_of: Callable[[TrialAdapter], Any], adapter: TrialAdapter) -> None:
        super().__init__(adapter)
        self._weights_of = weights_of

    def started(self) -> None:
        self.adapter.started()
        self.begun_with = self._weights_of(self.adapter)


@contextmanager
def record_adapters(kind: Callable[[TrialAdapter], RecordingAdapter]) -> Iterator[list[RecordingAdapter]]:
    """Give every loop that is made in this block a recorder, and yield the list of recorders."""
    recorders: list[RecordingAdapter] = []
    make, note = TrialLoop.__init__, TrialLoop.trained

    def init(loop: TrialLoop, adapter: TrialAdapter, core: Context, context: TrialContext, **kwargs: Any) -> None:
        recorders.append(kind(adapter))
        recorders[-1].context = context
        make(loop, recorders[-1], core, context, **kwargs)  # type: ignore[arg-type]

    def trained(loop: TrialLoop, batch_metrics: Sequence[Metrics]) -> None:
        recorders[-1].trained(batch_metrics)
        note(loop, batch_metrics)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrialLoop, "__init__", init)
        patch.setattr(TrialLoop, "trained", trained)
        yield recorders
