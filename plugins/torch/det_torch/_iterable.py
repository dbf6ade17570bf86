"""Loaders that cannot be entered anywhere: streams, and loaders that iterate in their own way.

Each epoch is one pass, a function of (seed, epoch). What was trained before is read again, or the dataset's own
state brings it back to where it was.
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
from det_core.trial.generators import derive_seed
from det_torch._stream import chain, enter_epoch, wrong_length

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
"""What a loader for one pass has in common with the one that the trial returned."""
_END = object()
_NUMPY = np.random.MT19937(0)


class Passes:
    """A data loader that is read from begin to end, pass after pass.

    Iterating changes no global generator of this process.

    Args:
        loader: over an `IterableDataset`, or of a class with its own ``__iter__``.
        seed: of everything random in it.

    Attributes:
        length: number of batches in a pass; None if the loader does not say.

    Raises:
        InvalidTrial: the loader's data workers outlive a pass, or hand in batches as they are ready.
    """

    def __init__(self, loader: DataLoader[Any], *, seed: int) -> None:
        self._loader = loader
        self._seed = seed
        self._as_it_is = not torch_iterates(loader) or isinstance(loader.dataset, IterDataPipe)
        if self._as_it_is and loader.num_workers:
            _check_workers(loader)
        self.length = length_of(loader)
        # Where each data worker may end with a batch that is not full, the length is a guess.
        self._tolerance = max(loader.num_workers - 1, 0) if isinstance(loader.dataset, IterableDataset) else 0
        self._stateful: Any = None

    def read(self, epoch: int, done: int = 0, state: Any = None) -> Iterator[Any]:
        """The batches of one pass.

        Args:
            epoch: which pass, from 0.
            done: number of batches that `state` was taken after; without a state the pass starts at its begin.
            state: from `state()`.

        Raises:
            InvalidTrial: the pass is empty, or not as long as the loader says.
        """
        for batch in self._open(epoch, done, state):
            done += 1
            if self.length is not None and done > self.length + self._tolerance:
                raise wrong_length(self._name, self.length, done, epoch)
            yield batch
        if not done:
            raise InvalidTrial(f"{self._name} yielded nothing in epoch {epoch}; expected at least one batch")
        if self.length is not None and done < self.length - self._tolerance:
            raise wrong_length(self._name, self.length, done, epoch)

    def state(self) -> Any:
        """Where the running pass is, to enter it again there; None if it must be read from its begin."""
        return None if self._stateful is None else self._stateful.state_dict()

    def close(self) -> None:
        """End the data workers of the running pass, once its iterator is gone too."""
        self._stateful = None

    @property
    def _name(self) -> str:
        return f"{type(self._loader).__name__} over {type(self._loader.dataset).__name__}"

    def _open(self, epoch: int, done: int, state: Any) -> Iterator[Any]:
        seed = derive_seed(self._seed, "epoch", epoch)
        if self._as_it_is:
            enter_epoch([self._loader, self._loader.dataset, *chain(self._loader)], epoch, seed)
            return _undisturbing(self._loader, seed, done)
        enter_epoch([self._loader.dataset], epoch, seed)
        loader = self._seeded(seed)
        if state is not None:
            if self._stateful is None:
                raise InvalidTrial(
                    f"the checkpoint holds a state of the dataset, which {self._name} cannot load; "
                    "it can only continue with the code, and the num_workers, that saved it"
                )
            self._stateful.load_state_dict(state)
        return iter(loader) if loader.num_workers else _undisturbing(loader, seed, done)

    def _seeded(self, seed: int) -> DataLoader[Any]:
        """A loader for one pass; from now on `_stateful` is what knows the state of the pass, if anything does."""
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
    """A dataset that knows how far it was read, and that in a data worker is reseeded for every batch."""

    def __init__(self, dataset: Any, batch_size: int, seed: int) -> None:
        self.dataset = dataset
        self._batch_size = batch_size
        self._seed = seed
        self._read = 0
        self._ended = False

    def __iter__(self) -> Iterator[Any]:
        # Asking an iterator again that has ended, or its state, may begin the next pass.
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
        if worker := get_worker_info():  # elsewhere `_undisturbing` seeds
            seed_cpu(derive_seed(self._seed, worker.id, self._read // self._batch_size))


class _StatefulRecords(_Records):
    def state_dict(self) -> dict[str, Any]:
        return {"read": self._read, "ended": self._ended, "dataset": self.dataset.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._read, self._ended = state["read"], state["ended"]
        self.dataset.load_state_dict(state["dataset"])


def torch_iterates(loader: DataLoader[Any]) -> bool:
    """Whether the loader is iterated by torch's or torchdata's code, so that another one made alike yields the same."""
    module: str = _iterating_class(loader).__module__
    return module.startswith(("torch.utils.data.", "torchdata."))


def length_of(loader: DataLoader[Any]) -> int | None:
    """Batches per pass, if the loader says."""
    try:
        return len(loader)
    except TypeError:
        return None


def seed_cpu(seed: int) -> None:
    """Seed the global generators of Python, numpy, and torch on the CPU; the devices' are the model's."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)


@contextmanager
def own_generators(seed: int) -> Iterator[None]:
    """Run a block on CPU generators of its own, seeded so.

    As `forked`, without a word about devices, for each batch: numpy's generator is changed for another one, as getting
    and setting its state would take longer than all the rest.
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
    # The user's function may configure the dataset that it finds there; torch's object is frozen.
    object.__setattr__(info, "dataset", info.dataset.dataset)
    if worker_init_fn:
        worker_init_fn(worker)


def _check_workers(loader: DataLoader[Any]) -> None:
    for option, expected in {"persistent_workers": False, "in_order": True}.items():
        if getattr(loader, option) is not expected:
            raise InvalidTrial(
                f"{type(loader).__name__} iterates in its own way, with {option}={not expected}; what its data workers "
                f"draw then depends on more than the seed and the epoch, so give it {option}={expected}"
            )


def _iterating_class(loader: DataLoader[Any]) -> Any:
    return next(base for base in type(loader).__mro__ if "__iter__" in vars(base))
