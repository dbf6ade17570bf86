"""Batches of training and validation, in an order that is a function of (seed, epoch)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import jax
import numpy as np

from det_core.errors import InvalidTrial
from det_core.trial.random_generators import derive_seed, seed_generators


class Arrays:
    """Records in arrays, which det divides into batches of ``global_batch_size`` records.

    In training, the records are shuffled for each epoch, and those that remain after the last complete batch are left
    out. A validation uses all records, in order.

    Args:
        arrays: pytree of arrays, such as ``(images, labels)``, whose first dimension is that of the records.

    Raises:
        InvalidTrial: the arrays have different numbers of records, or none.
    """

    def __init__(self, arrays: Any) -> None:
        self._arrays = jax.tree.map(np.asarray, arrays)
        lengths = {one.shape[0] if one.ndim else 0 for one in jax.tree.leaves(self._arrays)}
        if len(lengths) != 1 or 0 in lengths:
            raise InvalidTrial(
                f"Arrays got arrays with {sorted(lengths) or 'no'} records; expected the same positive number in all, "
                "as in Arrays((images, labels))"
            )
        self._length: int = lengths.pop()

    def __len__(self) -> int:
        """Return the number of records."""
        return self._length

    def __getitem__(self, records: Any) -> Any:
        """Return the records with these numbers, as a pytree of arrays."""
        return jax.tree.map(lambda array: array[records], self._arrays)


class BatchSource:
    """Batches of a data loader, the same each time that they are read.

    Args:
        loader: what a trial's ``build_training_data_loader`` or ``build_validation_data_loader`` returned.
        name: training or validation, for errors.
        size: number of records in a batch of `Arrays`.
        seed: seed of the order, or None to keep the order and, at the end of `Arrays`, a smaller batch.

    Raises:
        InvalidTrial: the loader cannot be used.
    """

    def __init__(self, loader: Any, name: str, size: int, seed: int | None) -> None:
        self._loader, self._size, self._seed = loader, size, seed
        self._is_sequence = hasattr(loader, "__getitem__") and hasattr(loader, "__len__")
        is_array = isinstance(loader, tuple | Mapping | np.ndarray | jax.Array)
        if is_array or not (self._is_sequence or hasattr(loader, "__iter__")):
            what = f"{type(loader).__name__}; for arrays, return det_jax.Arrays(...)"
        elif isinstance(loader, Iterator):
            what = "an iterator, which can be read only once; return a list, or an object with __iter__"
        elif self.batches == 0:
            what = f"data without a batch; expected at least one{f' of {size} records' * isinstance(loader, Arrays)}"
        else:
            return
        raise InvalidTrial(f"build_{name}_data_loader() returned {what}")

    @property
    def batches(self) -> int | None:
        """Number of batches in an epoch, or None if it is unknown."""
        length = len(self._loader) if hasattr(self._loader, "__len__") else None
        if length is None or not isinstance(self._loader, Arrays):
            return length
        return length // self._size if self._seed is not None else -(-length // self._size)

    def read(self, epoch: int = 0, first: int = 0) -> Iterator[Any]:
        """Return the batches of an epoch without the ``first`` ones, which are read only if there is no other way."""
        if self._is_sequence:
            return (self._loader[number] for number in self._order(epoch)[first:])
        if hasattr(self._loader, "set_epoch"):
            self._loader.set_epoch(epoch)
        batches: Iterator[Any] = iter(self._loader)
        if (found := sum(1 for _ in islice(batches, first))) < first:
            raise InvalidTrial(
                f"epoch {epoch} of the data has {found} batches; expected at least {first}, which were trained before. "
                "An iterable must yield the same batches each time"
            )
        return batches

    def _order(self, epoch: int) -> list[Any]:
        """Return what to get from a sequence for each batch of an epoch."""
        order = np.arange(len(self._loader))
        if self._seed is not None:
            np.random.default_rng(derive_seed(self._seed, "order", epoch)).shuffle(order)
        if not isinstance(self._loader, Arrays):
            return [*map(int, order)]
        return [order[batch * self._size :][: self._size] for batch in range(self.batches or 0)]


class EpochStream:
    """Endless training batches, epoch after epoch.

    The global generators of Python and NumPy, from which loaders may draw, are seeded at the start of each epoch.

    Args:
        source: batches of an epoch.
        seed: seed of the generators.
    """

    def __init__(self, source: BatchSource, seed: int) -> None:
        self._source, self._seed = source, seed
        self._epoch, self._number = 0, 0
        self._batches: Iterator[Any] | None = None

    def __next__(self) -> Any:
        """Return the next batch."""
        while True:
            self._batches = self._batches or self._open()
            try:
                batch = next(self._batches)
            except StopIteration:
                if not self._number:
                    raise InvalidTrial(f"the training data has no batch in epoch {self._epoch}") from None
                self.load_state({"epoch": self._epoch + 1, "batch": 0})
                continue
            self._number += 1
            return batch

    def state(self) -> dict[str, int]:
        """Return the position as JSON-compatible values."""
        return {"epoch": self._epoch, "batch": self._number}

    def load_state(self, state: Mapping[str, int]) -> None:
        """Continue at a position. Within an epoch, this draws from the generators as its previous batches did."""
        self._epoch, self._number = state["epoch"], state["batch"]
        self._batches = self._open() if self._number else None

    def _open(self) -> Iterator[Any]:
        seed_generators(derive_seed(self._seed, "epoch", self._epoch))
        return self._source.read(self._epoch, self._number)
