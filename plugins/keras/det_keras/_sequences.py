"""Order and parallel reading of the batches in Keras Sequences."""

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
from det_core.trial.random_generators import derive_seed, forked_generators

if TYPE_CHECKING:
    from typing_extensions import Self

    from det_keras._context import FitSettings

_READ_AHEAD = 10


@dataclass(frozen=True)
class SequenceAdapter:
    """Sequence with settings for reading it.

    Numbers that it draws from the generators of Python and NumPy are functions of (seed, epoch, batch), except in
    threads.

    Args:
        sequence: a ``tf.keras.utils.Sequence``. Its ``on_epoch_end`` is called between epochs.
        use_multiprocessing: whether workers are processes instead of threads.
        workers: the number of workers that read ahead. With 0 or 1, batches are read on demand.
        max_queue_size: the number of batches that may be read ahead, >= 1.

    Raises:
        InvalidTrial: ``sequence`` is not a ``tf.keras.utils.Sequence``.
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
        """Return an adapter with the settings of ``context.configure_fit``.

        Args:
            sequence: a ``tf.keras.utils.Sequence``.
            fit: the settings.
        """
        return cls(sequence, bool(fit.use_multiprocessing), fit.workers or 0, fit.max_queue_size or _READ_AHEAD)


@dataclass(frozen=True)
class SequenceOrder:
    """Order of one slot's batches in each epoch."""

    length: int
    """The number of batches in the sequence."""
    rank: int
    size: int
    batches: int
    """The number of batches per epoch on this slot."""
    seed: int | None
    """Seed of the shuffle, or None for no shuffle."""

    def of(self, epoch: int) -> list[int]:
        """Return the numbers of this slot's batches in an epoch."""
        numbers = list(range(self.length))
        if self.seed is not None:
            random.Random(derive_seed(self.seed, epoch)).shuffle(numbers)  # noqa: S311
        return numbers[self.rank :: self.size][: self.batches]


def read_sequence(
    adapter: SequenceAdapter, order: SequenceOrder, first: int, *, endless: bool, seed: int
) -> Iterator[Any]:
    """Yield this slot's batches from number ``first`` on.

    Args:
        adapter: the sequence.
        order: the order of the batches.
        first: the number of the first batch to yield, counted over all epochs.
        endless: whether to continue after the first epoch.
        seed: the seed of random numbers that the sequence draws.
    """
    begun, into = divmod(first, order.batches or 1)
    for epoch in range(begun):
        _end_epoch(adapter.sequence, seed, epoch)
    for epoch in count(begun) if endless else [0]:
        yield from _read_epoch(adapter, [(seed, epoch, number) for number in order.of(epoch)[into:]])
        into = 0
        if endless:
            _end_epoch(adapter.sequence, seed, epoch)


def _read_epoch(adapter: SequenceAdapter, numbers: list[tuple[int, int, int]]) -> Iterator[Any]:
    """Yield batches of one epoch. Workers never read beyond it, so none of them runs during ``on_epoch_end``."""
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
    # Fork, as Keras does, because sequences may not be picklable. The children do not run TensorFlow.
    fork = multiprocessing.get_context("fork")
    return ProcessPoolExecutor(adapter.workers, fork, _inherit, (adapter.sequence,))


_inherited: Any = None


def _inherit(sequence: Any) -> None:
    global _inherited
    _inherited = sequence


def _read_inherited(seed: int, epoch: int, number: int) -> Any:
    return _seeded(_inherited, seed, epoch, number)


def _read_plainly(sequence: Any, seed: int, epoch: int, number: int) -> Any:
    """Read a batch in a thread, without seeding the generators that other threads use."""
    return sequence[number]


def _seeded(sequence: Any, seed: int, epoch: int, number: int) -> Any:
    with forked_generators(derive_seed(seed, epoch, number)):
        return sequence[number]


def _end_epoch(sequence: Any, seed: int, epoch: int) -> None:
    with forked_generators(derive_seed(seed, "end of epoch", epoch)):
        sequence.on_epoch_end()
