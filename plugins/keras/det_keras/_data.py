"""Conversion of a trial's data to datasets that can start at any batch."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, TypeAlias

import tensorflow as tf

from det_core.errors import InvalidTrial
from det_core.trial.random_generators import derive_seed
from det_keras import _arrays, _sequences
from det_keras._class_weights import weigh_classes
from det_keras._context import TFKerasTrialContext
from det_keras._iterator_datasets import IteratorConverter

InputData: TypeAlias = Any
"""Data that ``build_training_data_loader`` and ``build_validation_data_loader`` may return.

- A ``tf.data.Dataset`` of batches, made from a result of ``context.wrap_dataset``. Training repeats it.
- A tuple ``(x, y)`` or ``(x, y, sample_weight)`` of arrays or tensors, each possibly nested in lists, tuples and dicts.
  det shuffles the records for training, and makes batches of ``context.get_per_slot_batch_size()``.
- A ``tf.keras.utils.Sequence``, or a `SequenceAdapter` with one. Each slot gets different batches.
- A function without arguments that returns an iterable over batches. Training calls it repeatedly. Each slot reads all
  batches, and uses every n-th.
- An endless iterator over batches, for training only.
"""


@dataclass(frozen=True)
class DatasetSource:
    """Source of one slot's batches."""

    start: Callable[[int], tf.data.Dataset]
    """Function that returns the dataset from a given batch on."""
    batches: int | None
    """The number of batches in an epoch, or None if neither the data nor the config defines it."""
    repeats: bool = False
    """Whether the dataset is one pass, which training must repeat."""
    length: int | None = None
    """The number of batches in such a pass, or None if unknown."""
    reader: IteratorConverter | None = None
    """Reader of the batches, if Python code yields them."""

    def first_batch(self) -> tf.data.Dataset:
        """Return a dataset of the first batch, or of a batch of zeros if reading would change what is read later."""
        data = self.start(0)
        if not _remembers_iterators(data):
            return data.take(1)
        return tf.data.Dataset.from_tensors(tf.nest.map_structure(make_zeros, data.element_spec))


@dataclass(frozen=True)
class _DataUse:
    """Purpose of the data, and the slot that reads it."""

    training: bool
    rank: int
    size: int
    seed: int
    batch_size: Callable[[], int]
    context: TFKerasTrialContext


def training_source(data: InputData, context: TFKerasTrialContext) -> DatasetSource:
    """Return the source of the batches that this slot trains on.

    Args:
        data: the result of ``build_training_data_loader``.
        context: the context of the trial.

    Raises:
        InvalidTrial: the data is none of `InputData`, or has no batch for some slot.
    """
    source = _source(data, _use(context, training=True))
    if not context._fit.class_weight:
        return source
    weigh, start = weigh_classes(context._fit.class_weight), source.start
    return replace(source, start=lambda batch: start(batch).map(weigh))


def validation_source(data: InputData, context: TFKerasTrialContext) -> DatasetSource:
    """Return the source of the batches that this slot validates with.

    Args:
        data: the result of ``build_validation_data_loader``.
        context: the context of the trial.

    Raises:
        InvalidTrial: the data is none of `InputData`, is empty or never ends.
    """
    source, steps = _source(data, _use(context, training=False)), context._fit.validation_steps
    if steps is None:
        return source
    batches = steps if source.batches is None else min(steps, source.batches)
    return replace(source, start=lambda _: source.start(0).take(steps), batches=batches)


def _use(context: TFKerasTrialContext, *, training: bool) -> _DataUse:
    seed = derive_seed(context.get_trial_seed(), "training data")
    ranks = context.distributed
    return _DataUse(training, ranks.rank, ranks.size, seed, context.get_per_slot_batch_size, context)


def _source(data: InputData, use: _DataUse) -> DatasetSource:
    for kind, make in _KINDS.items():
        if isinstance(data, kind):
            return make(data, use)
    if callable(data):
        return _from_function(data, use)
    raise InvalidTrial(
        f"build_{_name(use)}_data_loader() returned a {type(data).__name__}; expected a tf.data.Dataset, a tuple of "
        "arrays (x, y), a tf.keras.utils.Sequence, or a function that returns an iterable over batches"
    )


def _from_dataset(data: tf.data.Dataset, use: _DataUse) -> DatasetSource:
    if not use.context.datasets:
        raise InvalidTrial(
            f"build_{_name(use)}_data_loader() returned a dataset that was not wrapped; right after creating it, add: "
            "dataset = self.context.wrap_dataset(dataset)"
        )
    length = int(data.cardinality())
    if length == 0:
        raise _empty(use)
    endless, known = length == tf.data.INFINITE_CARDINALITY, length if length > 0 else None
    if not use.training:
        if endless and use.context._fit.validation_steps is None:
            raise InvalidTrial(
                "the validation data never ends; remove its repeat(), or call "
                "context.configure_fit(validation_steps=...)"
            )
        return DatasetSource(lambda _: data, known)
    if use.size > 1 and known is not None:  # shares may differ by a batch
        known = min(use.context.distributed.allgather(known))
    batches = known or use.context.batches_per_epoch()
    return DatasetSource(lambda batch: data.skip(batch) if batch else data, batches, repeats=not endless, length=known)


def _from_arrays(data: Any, use: _DataUse) -> DatasetSource:
    arrays = _arrays.to_keras_tensors(data, _name(use))
    layout = _arrays.BatchLayout.of(len(tf.nest.flatten(arrays)[0]), use.batch_size(), use.rank, use.size)
    if layout.batches == 0:
        raise _empty(use)
    if not use.training:
        return DatasetSource(lambda _: _arrays.one_pass(arrays, layout), layout.batches)
    seed = use.seed if use.context._fit.shuffle in (None, True) else None
    return DatasetSource(lambda batch: _arrays.endless_batches(arrays, layout, seed, batch), layout.batches)


def _from_sequence(data: Any, use: _DataUse) -> DatasetSource:
    fit = use.context._fit
    adapter = data if isinstance(data, _sequences.SequenceAdapter) else _sequences.SequenceAdapter.of(data, fit)
    length = len(adapter.sequence)
    # In training, the other slots would wait for one without a batch. In validation, it contributes nothing.
    batches = length // use.size if use.training else len(range(use.rank, length, use.size))
    if not batches and (use.training or not length):
        raise _empty(use)
    shuffled = use.training and fit.shuffle in (None, True)
    order = _sequences.SequenceOrder(length, use.rank, use.size, batches, use.seed if shuffled else None)
    samples = [adapter.sequence[0], adapter.sequence[length - 1]]
    reader = IteratorConverter(samples)

    def start(batch: int) -> tf.data.Dataset:
        return reader.dataset(
            lambda: _sequences.read_sequence(adapter, order, batch, endless=use.training, seed=use.seed)
        )

    return DatasetSource(start, batches, reader=reader)


def _from_function(data: Callable[[], Any], use: _DataUse) -> DatasetSource:
    reader = IteratorConverter(list(islice(iter(data()), 2)))

    def own() -> Iterator[Any]:
        return islice(iter(data()), use.rank, None, use.size)

    def again() -> Iterator[Any]:
        while True:
            yield from own()

    if not use.training:
        return DatasetSource(lambda _: reader.dataset(own), None, reader=reader)
    return DatasetSource(lambda batch: reader.skipped(again(), batch), use.context.batches_per_epoch(), reader=reader)


def _from_iterator(data: Iterator[Any], use: _DataUse) -> DatasetSource:
    if not use.training:
        raise InvalidTrial(
            "build_validation_data_loader() returned an iterator, which can be read only once; return the function "
            "that makes it, without calling it"
        )
    samples = list(islice(data, 2))
    reader = IteratorConverter(samples)
    own = islice(chain(samples, data), use.rank, None, use.size)
    return DatasetSource(lambda batch: reader.skipped(own, batch), use.context.batches_per_epoch(), reader=reader)


def make_zeros(spec: tf.TensorSpec) -> tf.Tensor:
    """Return zeros of a shape, with a single record where the number of records varies."""
    return tf.zeros([size or 1 for size in spec.shape], spec.dtype)


def _remembers_iterators(data: tf.data.Dataset) -> bool:
    """Return whether a dataset, or one that it reads, yields records by how often it was iterated before."""
    kind = type(data).__name__
    return any(name in kind for name in _KEEP_STATE) or any(map(_remembers_iterators, data._inputs()))


def _empty(use: _DataUse) -> InvalidTrial:
    return InvalidTrial(
        f"build_{_name(use)}_data_loader() returned data without a batch for each of the {use.size} slots; expected at "
        "least one per slot"
    )


def _name(use: _DataUse) -> str:
    return "training" if use.training else "validation"


_KEEP_STATE = ("Cache", "Random", "Shuffle")
"""Parts of the names of such datasets of TensorFlow."""
_KINDS: dict[Any, Callable[[Any, _DataUse], DatasetSource]] = {
    tf.data.Dataset: _from_dataset,
    tf.keras.utils.Sequence: _from_sequence,
    _sequences.SequenceAdapter: _from_sequence,
    (tuple, *_arrays.ARRAY_TYPES): _from_arrays,
    (Generator, Iterator): _from_iterator,
}
