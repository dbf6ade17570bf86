"""User-defined reducers for metrics that are not means over batches."""

from __future__ import annotations

import inspect
import io
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
import torch

from det_core.core import DistributedContext
from det_core.core.rank_agreement import all_ranks_group
from det_core.errors import InvalidTrial
from det_torch._checkpoints._packing import mark_accelerated, pack_state, unpack_state
from det_torch._metrics import metric_to_json

_NOTHING = object()
_log = logging.getLogger("det.torch")


class MetricReducer(ABC):
    """Base class of reducers for metrics that are collected batch by batch.

    Register an instance with ``context.wrap_reducer``. Define an update method of any name, and call it in
    ``train_batch`` or ``evaluate_batch``::

        class Accuracy(MetricReducer):
            def __init__(self):
                self.reset()

            def reset(self):
                self.right = self.seen = 0

            def update(self, logits, labels):
                self.right += (logits.argmax(1) == labels).sum().item()
                self.seen += len(labels)

            def per_slot_reduce(self):
                return self.right, self.seen

            def cross_slot_reduce(self, per_slot_metrics):
                right, seen = map(sum, zip(*per_slot_metrics))
                return right / seen

    A checkpoint between two reports includes the reducer's attributes that are tensors, numbers, strings, numpy values,
    or containers of them. A warning names others, except functions and classes. If an update changes one of those,
    define ``state_dict()`` and ``load_state_dict(state)``.
    """

    @abstractmethod
    def reset(self) -> None:
        """Discard all collected values. Called initially, between two reports, and before a validation."""

    @abstractmethod
    def per_slot_reduce(self) -> Any:
        """Return the values that this slot collected. They must be picklable, and tensors are moved to the CPU."""

    @abstractmethod
    def cross_slot_reduce(self, per_slot_metrics: list[Any]) -> Any:
        """Return the metric, or a dict of metrics if the reducer was wrapped without a name.

        Args:
            per_slot_metrics: return values of `per_slot_reduce` on all slots, in order of rank.
        """


class FunctionReducer(MetricReducer):
    """Reducer that collects values and computes the metric with a function.

    Args:
        function: function of the list of all values.
    """

    def __init__(self, function: Callable[[list[Any]], Any]) -> None:
        self._function = function
        self._values: list[Any] = []

    def update(self, value: Any) -> None:
        """Add a copy of the value of one batch. Tensors are detached from their graph."""
        self._values.append(_map_leaves(_copied, value))

    def reset(self) -> None:
        self._values = []

    def per_slot_reduce(self) -> list[Any]:
        return self._values

    def cross_slot_reduce(self, per_slot_metrics: list[list[Any]]) -> Any:
        """Call the function with all values in the order of global batches, taking one value per slot in turn."""
        rounds = zip_longest(*per_slot_metrics, fillvalue=_NOTHING)
        return self._function([value for values in rounds for value in values if value is not _NOTHING])

    def state_dict(self) -> dict[str, Any]:
        return {"values": self._values}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._values = state["values"]


@dataclass(frozen=True)
class _Wrapped:
    reducer: MetricReducer
    name: str | None
    label: str
    for_training: bool
    for_validation: bool

    def serves(self, *, training: bool) -> bool:
        return self.for_training if training else self.for_validation

    def metrics(self, reduced: Any) -> dict[str, Any]:
        if isinstance(reduced, dict) is (self.name is None):
            return reduced if self.name is None else {self.name: reduced}
        expected = (
            "a dict of metrics, or a name in wrap_reducer()"
            if self.name is None
            else "one value, or no name in wrap_reducer()"
        )
        raise InvalidTrial(f"the reducer {self.label} returned {reduced!r}; expected {expected}")


class ReducerSet:
    """Set of all wrapped reducers of one slot. It is false if empty."""

    def __init__(self) -> None:
        self._wrapped: list[_Wrapped] = []
        self._left_out: set[tuple[str, str]] = set()
        """Labels of reducers and names of their attributes that checkpoints cannot hold."""

    def __bool__(self) -> bool:
        return bool(self._wrapped)

    def wrap(
        self,
        reducer: MetricReducer | Callable[[list[Any]], Any],
        name: str | None = None,
        for_training: bool = True,
        for_validation: bool = True,
    ) -> MetricReducer:
        """Add a reducer and reset it.

        Args:
            reducer: a reducer, or a function that computes the metric from the list of all values.
            name: name of the metric. None if the reducer returns a dict of metrics.
            for_training: whether training metrics include the metric.
            for_validation: whether validation metrics include the metric.

        Returns:
            The reducer, which is a `FunctionReducer` if a function was passed.

        Raises:
            InvalidTrial: ``reducer`` is neither, or it is for training and its ``state_dict()`` does not fit into
                checkpoints.
        """
        label = name or str(getattr(reducer, "__name__", type(reducer).__name__))
        if not isinstance(reducer, MetricReducer):
            if not callable(reducer):
                raise InvalidTrial(
                    f"wrap_reducer() was given {reducer!r}; expected a det_torch.MetricReducer object or a function "
                    "of a list of values"
                )
            reducer = FunctionReducer(reducer)
        reducer.reset()
        self._wrapped.append(_Wrapped(reducer, name, label, for_training, for_validation))
        if for_training:
            self._packed_state(self._wrapped[-1])  # raises or warns now instead of at the first checkpoint
        return reducer

    def reset(self, *, training: bool) -> None:
        """Reset the reducers for training or those for validation."""
        for one in self._distinct(training=training):
            one.reducer.reset()

    def reduce(self, distributed: DistributedContext, *, training: bool, taken: Collection[str] = ()) -> dict[str, Any]:
        """Return the metrics of all reducers for training or for validation. All slots must call it together.

        Args:
            distributed: communication with the other slots.
            training: True for the reducers for training, False for those for validation.
            taken: names of the metrics that the trial itself returned.

        Returns:
            Plain values by name of the metric.

        Raises:
            InvalidTrial: a reducer returned an invalid metric, or two metrics have the same name.
        """
        serving = [one for one in self._wrapped if one.serves(training=training)]
        if not serving:
            return {}
        by_slot = all_ranks_group(distributed).together(
            lambda: [_map_leaves(_on_cpu, one.reducer.per_slot_reduce()) for one in serving]
        )
        by_reducer = zip(*by_slot, strict=True)
        owners = dict.fromkeys(taken, "train_batch()" if training else "the trial's evaluation")
        metrics: dict[str, Any] = {}
        for one, per_slot in zip(serving, by_reducer, strict=True):
            for name, value in one.metrics(one.reducer.cross_slot_reduce(list(per_slot))).items():
                owner = f"the reducer {one.label}"
                if owners.setdefault(name, owner) is not owner:
                    raise InvalidTrial(f"the metric {name!r} comes from {owners[name]} and from {owner}; rename one")
                metrics[name] = metric_to_json(name, value)
        return metrics

    @contextmanager
    def validating(self) -> Iterator[None]:
        """Reset the reducers for validation, and after the block restore those that are also for training."""
        validated = {id(one.reducer) for one in self._distinct(training=False)}
        both = [one for one in self._distinct(training=True) if id(one.reducer) in validated]
        aside = _to_bytes([self._packed_state(one) for one in both]) if both else None
        self.reset(training=False)
        try:
            yield
        finally:
            if aside is not None:
                self.reset(training=False)  # for attributes that were not put aside
                _restore_all(both, _from_bytes(aside))

    def state_dict(self) -> list[Any]:
        """Return the states of the reducers for training, in types that can be loaded safely."""
        return [self._packed_state(one) for one in self._distinct(training=True)]

    def load_state_dict(self, states: Sequence[Any], device: torch.device) -> None:
        """Restore states that `state_dict` returned.

        Args:
            states: the states, in the order in which the reducers were wrapped.
            device: device for tensors that were on an accelerator when they were saved.

        Raises:
            InvalidTrial: the number of reducers has changed.
        """
        wrapped = self._distinct(training=True)
        if len(wrapped) != len(states):
            raise InvalidTrial(
                f"the checkpoint has {len(states)} metric reducers for training, but the trial has {len(wrapped)}; "
                "it can only continue with the code that saved it"
            )
        _restore_all(wrapped, states, device)

    def _distinct(self, *, training: bool) -> list[_Wrapped]:
        """Return the reducers for training or for validation. A reducer with two names appears once."""
        return list({id(one.reducer): one for one in self._wrapped if one.serves(training=training)}.values())

    def _packed_state(self, one: _Wrapped) -> Any:
        reducer: Any = one.reducer
        place = f"reducers.{one.label}"
        if hasattr(reducer, "state_dict"):
            return mark_accelerated(pack_state(reducer.state_dict(), place))
        packed = {}
        for name, value in vars(reducer).items():
            if inspect.isroutine(value) or inspect.isclass(value):
                continue
            try:
                packed[name] = pack_state(value, (place, name))
            except InvalidTrial as error:
                self._warn_of_left_out(one.label, name, error)
        return mark_accelerated(packed)

    def _warn_of_left_out(self, label: str, name: str, why: InvalidTrial) -> None:
        if (label, name) not in self._left_out:
            self._left_out.add((label, name))
            _log.warning(
                "checkpoints leave out the attribute %r of the reducer %s; if it changes between two reports, define "
                "state_dict() and load_state_dict() in the reducer: %s",
                name,
                label,
                why,
            )


def _restore_all(wrapped: Sequence[_Wrapped], states: Sequence[Any], accelerator: torch.device | None = None) -> None:
    for one, packed in zip(wrapped, states, strict=True):
        load = getattr(one.reducer, "load_state_dict", vars(one.reducer).update)
        load(unpack_state(packed, accelerator))


def _to_bytes(packed: Any) -> bytes:
    # Serialization, as for a checkpoint, makes a copy that shares no objects with those that reducers change in place.
    buffer = io.BytesIO()
    torch.save(packed, buffer)
    return buffer.getvalue()


def _from_bytes(content: bytes) -> Any:
    return torch.load(io.BytesIO(content), weights_only=True)


def _map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    if type(value) is dict:
        return {key: _map_leaves(function, item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_map_leaves(function, item) for item in value)
    return function(value)


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return value.copy() if isinstance(value, np.ndarray) else value


def _on_cpu(value: Any) -> Any:
    return value.detach().cpu() if isinstance(value, torch.Tensor) else value
