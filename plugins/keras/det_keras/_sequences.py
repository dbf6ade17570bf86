"""Keras Sequences: which batches to read when, and by whom."""

from __future__ import annotations

import multiprocessing
import random
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count, islice
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from det_core.errors import InvalidTrial
from det_core.trial.generators import derive_seed, forked

if TYPE_CHECKING:
    from typing_extensions import Self

    from det_keras._context import FitSettings

_READ_AHEAD = 10


@dataclass(frozen=True)
class SequenceAdapter:
    """A Sequence, and who reads it.

    Args:
        sequence: a ``tf.keras.utils.Sequence``. Its ``on_epoch_end`` is called between epochs.
        use_multiprocessing: whether workers are processes instead of threads.
        workers: how many read ahead. Up to 1, batches are read when they are needed.
        max_queue_size: batches that may be read ahead, >= 1.

    What it draws from the generators of Python and NumPy is a function of (seed, epoch, batch), except in threads.

    Raises:
        InvalidTrial: the sequence is none.
    """

    sequence: Any
    use_multiprocessing: bool = False
    workers: int = 1
    max_queue_size: int = _READ_AHEAD

    def __post_init__(self) -> None:
        if not isinstance(self.sequence, tf.keras.utils.Sequence):
            raise InvalidTrial(
                f"SequenceAdapter() got a {type(self.sequence).__name__}; expected a tf.keras.utils.Sequence"
            )

    @classmethod
    def of(cls, sequence: Any, fit: FitSettings) -> Self:
        return cls(sequence, bool(fit.use_multiprocessing), fit.workers or 0, fit.max_queue_size or _READ_AHEAD)


@dataclass(frozen=True)
class Order:
    """The batches of one slot, in each epoch."""

    length: int
    """Of the sequence."""
    rank: int
    size: int
    batches: int
    seed: int | None
    """None: not shuffled."""

    def of(self, epoch: int) -> list[int]:
        numbers = list(range(self.length))
        if self.seed is not None:
            random.Random(derive_seed(self.seed, epoch)).shuffle(numbers)  # noqa: S311
        return numbers[self.rank :: self.size][: self.batches]


def read(adapter: SequenceAdapter, order: Order, first: int, *, endless: bool, seed: int) -> Iterator[Any]:
    """Batches from number ``first`` on."""
    begun, into = divmod(first, order.batches or 1)
    for epoch in range(begun):
        _end_epoch(adapter.sequence, seed, epoch)
    for epoch in count(begun) if endless else [0]:
        yield from _read_epoch(adapter, [(seed, epoch, number) for number in order.of(epoch)[into:]])
        into = 0
        if endless:
            _end_epoch(adapter.sequence, seed, epoch)


def _read_epoch(adapter: SequenceAdapter, numbers: list[tuple[int, int, int]]) -> Iterator[Any]:
    """In epochs of their own, so that ``on_epoch_end`` does not meet a reader."""
    if adapter.workers <= 1:
        yield from (_seeded(adapter.sequence, *number) for number in numbers)
        return
    with _executor(adapter) as executor:
        task: Callable[..., Any] = _read_inherited if adapter.use_multiprocessing else _read_plainly
        sequence = () if adapter.use_multiprocessing else (adapter.sequence,)
        waiting = iter(numbers)
        running = deque(executor.submit(task, *sequence, *one) for one in islice(waiting, adapter.max_queue_size))
        while running:
            batch = running.popleft().result()
            running += [executor.submit(task, *sequence, *one) for one in islice(waiting, 1)]
            yield batch


def _executor(adapter: SequenceAdapter) -> Executor:
    if not adapter.use_multiprocessing:
        return ThreadPoolExecutor(adapter.workers, thread_name_prefix="det-sequence")
    # Forked, as by Keras: sequences hold what cannot be pickled, and the children run no TensorFlow.
    fork = multiprocessing.get_context("fork")
    return ProcessPoolExecutor(adapter.workers, fork, _inherit, (adapter.sequence,))


_inherited: Any = None


def _inherit(sequence: Any) -> None:
    global _inherited
    _inherited = sequence


def _read_inherited(seed: int, epoch: int, number: int) -> Any:
    return _seeded(_inherited, seed, epoch, number)


def _read_plainly(sequence: Any, seed: int, epoch: int, number: int) -> Any:
    """In a thread, which must not seed what others draw from."""
    return sequence[number]


def _seeded(sequence: Any, seed: int, epoch: int, number: int) -> Any:
    with forked(derive_seed(seed, epoch, number)):
        return sequence[number]


def _end_epoch(sequence: Any, seed: int, epoch: int) -> None:
    with forked(derive_seed(seed, "end of epoch", epoch)):
        sequence.on_epoch_end()
