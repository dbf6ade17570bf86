"""Data loaders without random access, which are streams and loaders with their own way of iterating.

Each epoch is one pass, which depends only on the seed and the epoch. To resume, either the earlier batches are read
again, or the dataset restores its own state.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import torch
from numpy.random.mtrand import get_bit_generator, set_bit_generator
from torch.utils.data import DataLoader, IterableDataset, IterDataPipe, get_worker_info

from det_core.errors import InvalidTrial
from det_core.trial.random_generators import derive_seed
from det_torch._batch_order import enter_epoch, epoch_length_error, iterate_samplers

_OPTIONS = (
    "batch_size",
    "num_workers",
    "collate_fn",
    "pin_memory",
    "drop_last",
    "timeout",
    "multiprocessing_context",
    "prefetch_factor",
)
"""Options that a loader for one pass takes from the loader that the trial returned."""
_END = object()
_NUMPY = np.random.MT19937(0)


class PassLoader:
    """Data loader that is read from beginning to end, pass after pass.

    Iterating does not change the global generators of this process.

    Args:
        loader: loader of an `IterableDataset`, or of a class with its own ``__iter__``.
        seed: seed of all its randomness.

    Attributes:
        length: number of batches in a pass. None if the loader has no length.

    Raises:
        InvalidTrial: the loader's class has its own ``__iter__``, and its data workers are persistent or yield batches
            out of order.
    """

    def __init__(self, loader: DataLoader[Any], *, seed: int) -> None:
        self._loader = loader
        self._seed = seed
        self._as_it_is = not torch_iterates(loader) or isinstance(loader.dataset, IterDataPipe)
        if self._as_it_is and loader.num_workers:
            _check_workers(loader)
        self.length = pass_length(loader)
        # The length is an estimate if there are several data workers, because each may end with an incomplete batch.
        self._tolerance = max(loader.num_workers - 1, 0) if isinstance(loader.dataset, IterableDataset) else 0
        self._stateful: Any = None

    def read(self, epoch: int, done: int = 0, state: Any = None) -> Iterator[Any]:
        """Iterate over the batches of one pass.

        Args:
            epoch: number of the pass, from 0.
            done: number of batches that had been read when ``state`` was taken. 0 without a state.
            state: return value of the method `state`. None starts at the beginning of the pass.

        Raises:
            InvalidTrial: the pass is empty, or its length differs from the loader's.
        """
        for batch in self._open(epoch, done, state):
            done += 1
            if self.length is not None and done > self.length + self._tolerance:
                raise epoch_length_error(self._name, self.length, done, epoch)
            yield batch
        if not done:
            raise InvalidTrial(f"{self._name} yielded nothing in epoch {epoch}; expected at least one batch")
        if self.length is not None and done < self.length - self._tolerance:
            raise epoch_length_error(self._name, self.length, done, epoch)

    def state(self) -> Any:
        """Return the state from which to continue the current pass. None if it must be read from its beginning."""
        return None if self._stateful is None else self._stateful.state_dict()

    def close(self) -> None:
        """Release the current pass. Its data workers stop when its iterator is deleted too."""
        self._stateful = None

    @property
    def _name(self) -> str:
        return f"{type(self._loader).__name__} over {type(self._loader.dataset).__name__}"

    def _open(self, epoch: int, done: int, state: Any) -> Iterator[Any]:
        seed = derive_seed(self._seed, "epoch", epoch)
        if self._as_it_is:
            enter_epoch([self._loader, self._loader.dataset, *iterate_samplers(self._loader)], epoch, seed)
            return _undisturbing(self._loader, seed, done)
        enter_epoch([self._loader.dataset], epoch, seed)
        loader = self._seeded(seed)
        if state is not None:
            if self._stateful is None:
                raise InvalidTrial(
                    f"the checkpoint holds a state of the dataset, which {self._name} cannot load; "
                    "it can only continue with the code and the num_workers that saved it"
                )
            self._stateful.load_state_dict(state)
        return iter(loader) if loader.num_workers else _undisturbing(loader, seed, done)

    def _seeded(self, seed: int) -> DataLoader[Any]:
        """Return a loader for one pass. Set `_stateful` to the object that has the state of the pass, or None."""
        given: Any = self._loader
        stateful = hasattr(given.dataset, "state_dict") and hasattr(given.dataset, "load_state_dict")
        dataset = (_StatefulRecords if stateful else _Records)(given.dataset, given.batch_size or 1, seed)
        options = {name: getattr(given, name) for name in _OPTIONS}
        options["worker_init_fn"] = partial(_start_worker, given.worker_init_fn)
        options["generator"] = torch.Generator().manual_seed(seed)
        if stateful and given.num_workers and hasattr(given, "snapshot_every_n_steps"):
            options["snapshot_every_n_steps"] = given.snapshot_every_n_steps
            self._stateful = _iterating_class(given)(dataset, **options)
            return self._stateful  # type: ignore[no-any-return]
        self._stateful = dataset if stateful and not given.num_workers else None
        return DataLoader(dataset, **options)


class _Records(IterableDataset[Any]):
    """Dataset that counts the records that were read. In a data worker it is reseeded for every batch."""

    def __init__(self, dataset: Any, batch_size: int, seed: int) -> None:
        self.dataset = dataset
        self._batch_size = batch_size
        self._seed = seed
        self._read = 0
        self._ended = False

    def __iter__(self) -> Iterator[Any]:
        # A dataset that is exhausted, or was when its state was saved, might begin its next pass if iterated again.
        return self._counted(iter(() if self._ended else self.dataset))

    def _counted(self, records: Iterator[Any]) -> Iterator[Any]:
        self._seed_batch()
        for record in records:
            self._read += 1
            yield record
            if self._read % self._batch_size == 0:
                self._seed_batch()
        self._ended = True

    def _seed_batch(self) -> None:
        if worker := get_worker_info():  # outside of data workers, `_undisturbing` seeds
            seed_cpu(derive_seed(self._seed, worker.id, self._read // self._batch_size))


class _StatefulRecords(_Records):
    def state_dict(self) -> dict[str, Any]:
        return {"read": self._read, "ended": self._ended, "dataset": self.dataset.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._read, self._ended = state["read"], state["ended"]
        self.dataset.load_state_dict(state["dataset"])


def torch_iterates(loader: DataLoader[Any]) -> bool:
    """Return whether torch or torchdata iterates the loader. If so, a loader with the same options yields the same."""
    module: str = _iterating_class(loader).__module__
    return module.startswith(("torch.utils.data.", "torchdata."))


def pass_length(loader: DataLoader[Any]) -> int | None:
    """Return the number of batches per pass, or None if the loader has no length."""
    try:
        return len(loader)
    except TypeError:
        return None


def seed_cpu(seed: int) -> None:
    """Seed the global generators of Python, numpy and torch on the CPU. Those of other devices belong to the model."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)


@contextmanager
def own_generators(seed: int) -> Iterator[None]:
    """Run a block with separately seeded CPU generators, and restore the global ones afterwards.

    Unlike `forked`, it ignores generators of devices and is fast enough to run for each batch. It replaces numpy's
    generator, because getting and setting its state would take longer than everything else.

    Args:
        seed: seed of the generators within the block.
    """
    python, numpy, cpu = random.getstate(), get_bit_generator(), torch.default_generator.get_state()
    set_bit_generator(_NUMPY)
    seed_cpu(seed)
    try:
        yield
    finally:
        random.setstate(python)
        set_bit_generator(numpy)
        torch.default_generator.set_state(cpu)


def _undisturbing(loader: DataLoader[Any], seed: int, done: int) -> Iterator[Any]:
    with own_generators(derive_seed(seed, "begin")):
        batches = iter(loader)
    for number in count(done):
        with own_generators(derive_seed(seed, number)):
            batch = next(batches, _END)
        if batch is _END:
            return
        yield batch


def _start_worker(worker_init_fn: Callable[[int], None] | None, worker: int) -> None:
    info: Any = get_worker_info()
    # The user's function may configure the dataset in torch's worker info, which rejects normal assignments.
    object.__setattr__(info, "dataset", info.dataset.dataset)
    if worker_init_fn:
        worker_init_fn(worker)


def _check_workers(loader: DataLoader[Any]) -> None:
    for option, expected in {"persistent_workers": False, "in_order": True}.items():
        if getattr(loader, option) is not expected:
            raise InvalidTrial(
                f"{type(loader).__name__} has its own __iter__ and {option}={not expected}, so the random numbers of "
                f"its data workers depend on more than the seed and the epoch; set {option}={expected}"
            )


def _iterating_class(loader: DataLoader[Any]) -> Any:
    return next(base for base in type(loader).__mro__ if "__iter__" in vars(base))
