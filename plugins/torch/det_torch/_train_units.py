"""Lengths of training in scripts, such as ``Batch(100)``, ``Epoch(3)`` or ``Record([640, 6400])``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import index
from typing import ClassVar

from det_core.config import Length, Unit
from det_core.trial import Period


@dataclass(frozen=True)
class TrainUnit:
    """Base of the units `Batch`, `Epoch` and `Record`.

    Args:
        value: a period or points. A period is an integer >= 0, where 0 means only at the end. Points are integers >= 1
            in a list, tuple, set or range, counted from the start of the trial.

    Raises:
        TypeError: the value is neither an integer nor an iterable of integers.
        ValueError: a number is too small, or there are no points.
    """

    value: int | Iterable[int]

    _unit: ClassVar[Unit]

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", _whole(self.value, type(self).__name__))

    def _period(self) -> Period:
        if isinstance(self.value, tuple):
            return tuple(Length(point, self._unit) for point in self.value)
        assert isinstance(self.value, int)
        return Length(self.value, self._unit)


class Batch(TrainUnit):
    """Number of batches that each slot trains."""

    _unit = Unit.BATCHES


class Epoch(TrainUnit):
    """Number of passes over the training data."""

    _unit = Unit.EPOCHS


class Record(TrainUnit):
    """Number of records that all slots train together. A global batch has ``global_batch_size`` records."""

    _unit = Unit.RECORDS


def _whole(value: object, name: str) -> int | tuple[int, ...]:
    expected = f"expected an integer such as {name}(100), or points such as {name}([5, 30, 45])"
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        points = tuple(sorted({_integer(point, name, expected) for point in value}))
        if not points or points[0] < 1:
            raise ValueError(f"{name}({value!r}): {expected}, each at least 1")
        return points
    period = _integer(value, name, expected)
    if period < 0:
        raise ValueError(f"{name}({value!r}): {expected}, at least 0")
    return period


def _integer(value: object, name: str, expected: str) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}({value!r}): {expected}")
    return index(value)
