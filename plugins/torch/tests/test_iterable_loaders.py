"""Streams and loaders with their own ``__iter__`` continue exactly after any batch."""

from __future__ import annotations

import io
import logging
import multiprocessing
import random
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from det_torch import DataLoader
from det_torch._data import UnmanagedStream, training_data, validation_data
from det_torch._random import rng_state, seed_all
from torch.utils.data import IterableDataset, RandomSampler, WeightedRandomSampler, get_worker_info

from det_core.errors import InvalidTrial

# torchdata's loader calls a function that newer releases of torch have deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")

RECORDS, BATCH, READ = 23, 4, 15
"""Six batches per epoch, two and a half epochs."""


class Stream(IterableDataset[Any]):
    """Stream of records that differ at every reading. All three generators draw their noise and order."""

    def order(self) -> list[int]:
        worker = get_worker_info()
        own = list(range(RECORDS)) if worker is None else list(range(worker.id, RECORDS, worker.num_workers))
        random.shuffle(own)
        return own

    def __iter__(self) -> Iterator[Any]:
        return map(self.record, self.order())

    def record(self, number: int) -> torch.Tensor:
        drawn = [random.random(), np.random.rand(), torch.rand(()).item()]
        return torch.tensor([number, *drawn], dtype=torch.float64)


class LazyStream(Stream):
    """Stream that draws its order when the first record is requested."""

    def __iter__(self) -> Iterator[Any]:
        yield from map(self.record, self.order())


class SizedStream(Stream):
    def __len__(self) -> int:
        return RECORDS


class Positioned(Stream):
    """Stream with a state, which starts again by itself after its end."""

    def __init__(self) -> None:
        self.left: list[int] | None = None
        self.reads = 0

    def __iter__(self) -> Iterator[Any]:
        if self.left is None:
            self.left = self.order()
        while self.left:
            self.reads += 1
            yield self.record(self.left.pop())
        self.left = None

    def state_dict(self) -> dict[str, Any]:
        return {"left": None if self.left is None else [*self.left]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.left = state["left"]


class Epochs(Stream):
    """Stream whose order depends on the epoch."""

    epoch = -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def order(self) -> list[int]:
        first = self.epoch % RECORDS
        return [*range(first, RECORDS), *range(first)]


class Numbers(torch.utils.data.Dataset[Any]):
    record = Stream.record

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.record(index)

    def __len__(self) -> int:
        return RECORDS


class Doubling(DataLoader[Any]):
    """Loader with its own ``__iter__``, which draws random numbers."""

    def __iter__(self) -> Iterator[Any]:
        for batch in super().__iter__():
            yield 2 * batch + random.random()


def stateful(**options: Any) -> Any:
    return pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader(Positioned(), BATCH, **options)


LOADERS: dict[str, Callable[[], Any]] = {
    "stream": lambda: DataLoader(Stream(), BATCH),
    "lazy": lambda: DataLoader(LazyStream(), BATCH),
    "with length": lambda: DataLoader(SizedStream(), BATCH),
    "drop last": lambda: DataLoader(Stream(), BATCH, drop_last=True),
    "no batching": lambda: DataLoader(Stream(), None),
    "epochs": lambda: DataLoader(Epochs(), BATCH),
    "state": lambda: DataLoader(Positioned(), BATCH),
    "plain torch": lambda: torch.utils.data.DataLoader(Stream(), BATCH),
    "workers": lambda: DataLoader(Stream(), BATCH, num_workers=2),
    "workers, lazy": lambda: DataLoader(LazyStream(), BATCH, num_workers=2),
    "workers, persistent": lambda: DataLoader(SizedStream(), BATCH, num_workers=2, persistent_workers=True),
    "workers, no batching": lambda: DataLoader(Stream(), None, num_workers=2),
    "workers, state": lambda: DataLoader(Positioned(), BATCH, num_workers=2),
    "torchdata": stateful,
    "torchdata, workers": lambda: stateful(num_workers=2),
    "torchdata, workers, seldom": lambda: stateful(num_workers=2, snapshot_every_n_steps=3),
    "own way": lambda: Doubling(Numbers(), BATCH, shuffle=True),
    "own way, generator": lambda: Doubling(
        Numbers(), BATCH, sampler=RandomSampler(Numbers(), generator=torch.Generator())
    ),
    "own way, weights": lambda: Doubling(Numbers(), BATCH, sampler=WeightedRandomSampler([1.0] * RECORDS, RECORDS)),
    "own way, stream": lambda: Doubling(Stream(), BATCH),
    "own way, workers": lambda: Doubling(Numbers(), BATCH, shuffle=True, num_workers=2),
    "own way, stream, workers": lambda: Doubling(LazyStream(), BATCH, num_workers=2),
}


OPENED: list[Any] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


def soak(*cases: str) -> list[Any]:
    """Return cases that run in the soak only, because each starts data workers as other cases do."""
    return [pytest.param(case, marks=pytest.mark.soak) for case in cases]


def data_of(loader: Any, **options: Any) -> Any:
    OPENED.append(training_data(loader, **{"rank": 0, "size": 1, "seed": 7, **options}))
    return OPENED[-1]


def read(stream: Any, count: int, number: int = 0, state: Any = None) -> list[Any]:
    return [batch.tolist() for batch in islice(stream.start(number, state), count)]


def records(batches: list[Any]) -> list[int]:
    return sorted(int(record[0]) for batch in batches for record in batch)


def through_a_file(state: Any) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


SAME = ("workers, persistent", "own way, stream, workers")
"""Cases of which others have each part."""


@pytest.mark.parametrize("case", [*(case for case in LOADERS if case not in SAME), *soak(*SAME)])
def test_a_stream_continues_exactly_after_any_batch(case: str) -> None:
    # Within an epoch, before its last batch, at its end, after the first batch of the next one. Each epoch has new data
    # workers, so these cases have fewer.
    total, stops = (8, (5, 6)) if "workers" in case else (READ, (2, 5, 6, 7, 13))
    stream = data_of(LOADERS[case]())
    expected, states = [], [None]
    for batch in islice(stream.start(0, None), total):
        expected.append(batch.tolist())
        states.append(through_a_file(stream.state()))
    stream.close()
    for number in stops:
        seed_all(number)  # the state of the generators must not matter
        again = data_of(LOADERS[case]())
        assert read(again, total - number, number, states[number]) == expected[number:]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.integration
def test_without_a_state_everything_is_read_again(workers: int) -> None:
    expected = read(data_of(DataLoader(Positioned(), BATCH, num_workers=workers)), 8)
    assert read(data_of(DataLoader(Positioned(), BATCH, num_workers=workers)), 2, 6) == expected[6:]


@pytest.mark.parametrize("case", ["stream", "workers", "torchdata, workers", "own way, stream"])
def test_each_epoch_draws_anew_and_has_every_record_once(case: str) -> None:
    batches = read(data_of(LOADERS[case]()), 12)
    assert batches[:6] != batches[6:]
    if "own way" not in case:
        assert records(batches[:6]) == records(batches[6:]) == list(range(RECORDS))
    assert read(data_of(LOADERS[case](), seed=8), 6) != batches[:6]


@pytest.mark.parametrize("case", ["stream", "state", "workers", "torchdata, workers", "own way", "own way, workers"])
def test_reading_draws_from_no_generator_of_the_trial(case: str, fingerprint: Any) -> None:
    iterator = data_of(LOADERS[case]()).start(0, None)
    before = fingerprint(rng_state())
    list(islice(iterator, 8))
    assert fingerprint(rng_state()) == before


@pytest.mark.parametrize("case", ["stream", "state", "own way", *soak("workers", "torchdata, workers")])
def test_ranks_divide_the_stream_exactly(case: str) -> None:
    expected = read(data_of(LOADERS[case]()), 16)
    for rank in range(2):
        stream = data_of(LOADERS[case](), rank=rank, size=2)
        assert read(stream, 5) == expected[rank:10:2]
        state = through_a_file(stream.state())
        stream.close()
        again = data_of(LOADERS[case](), rank=rank, size=2)
        assert read(again, 3, 5, state) == expected[10 + rank :: 2]


def test_a_dataset_with_state_reads_nothing_again() -> None:
    dataset = Positioned()
    stream = data_of(DataLoader(dataset, BATCH))
    read(stream, 9)
    fresh = Positioned()
    read(data_of(DataLoader(fresh, BATCH)), 1, 9, stream.state())
    assert fresh.reads == BATCH


def test_a_state_that_nothing_can_load_is_an_error() -> None:
    stream = data_of(DataLoader(Positioned(), BATCH))
    read(stream, 3)
    with pytest.raises(InvalidTrial, match="state of the dataset, which DataLoader over Stream cannot load"):
        read(data_of(DataLoader(Stream(), BATCH)), 1, 3, stream.state())


def test_only_the_data_of_one_epoch_is_read_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    read(data_of(DataLoader(Stream(), 1)), 1, 200, {"epoch": 8, "first": 184, "done": 16, "dataset": None})
    assert len(read(data_of(DataLoader(Stream(), 1)), 1, 99)) == 1  # too few to mention
    assert not caplog.messages
    assert len(read(data_of(DataLoader(Stream(), 1)), 1, 100)) == 1
    assert [message for message in caplog.messages if "again" in message] == [
        "reading 100 batches again that were trained before; "
        "to avoid this, define state_dict() and load_state_dict() in the dataset"
    ]


@pytest.mark.parametrize(
    ("loader", "options", "expected"),
    [
        (lambda: DataLoader(Stream(), BATCH), {}, None),
        (lambda: DataLoader(SizedStream(), BATCH), {}, 6),
        (lambda: DataLoader(SizedStream(), BATCH), {"size": 4, "records_per_epoch": 1000}, 2),
        (lambda: DataLoader(Stream(), BATCH), {"records_per_epoch": 100}, 25),
        (lambda: DataLoader(Stream(), BATCH), {"records_per_epoch": 100, "size": 3}, 8),
        (lambda: DataLoader(Stream(), BATCH), {"records_per_epoch": 3}, 1),
        (lambda: DataLoader(Stream(), None), {"records_per_epoch": 3}, 3),
    ],
)
def test_batches_per_epoch_follow_from_the_length_or_the_config(
    loader: Any, options: dict[str, Any], expected: int | None
) -> None:
    assert data_of(loader(), **options).batches_per_epoch == expected


class Lying(Stream):
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length


class Nothing(Stream):
    def order(self) -> list[int]:
        return []


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        (lambda: DataLoader(Lying(30), BATCH), "length of DataLoader over Lying is 8, but it yielded 6 in epoch 0"),
        (lambda: DataLoader(Lying(20), BATCH), "length of DataLoader over Lying is 5, but it yielded more in epoch 0"),
        (lambda: DataLoader(Nothing(), BATCH), "DataLoader over Nothing yielded nothing in epoch 0"),
        (lambda: DataLoader(Nothing(), BATCH, num_workers=2), "yielded nothing in epoch 0"),
        (lambda: DataLoader(Lying(0), BATCH), "length 0: 0 records"),
        (
            lambda: Doubling(Numbers(), BATCH, num_workers=1, persistent_workers=True),
            "Doubling has its own __iter__ and persistent_workers=True, .*; set persistent_workers=False",
        ),
        (lambda: Doubling(Numbers(), BATCH, num_workers=1, in_order=False), "set in_order=True"),
    ],
)
def test_a_loader_that_cannot_be_read_exactly_is_an_error(loader: Any, message: str) -> None:
    with pytest.raises(InvalidTrial, match=message):
        read(data_of(loader()), READ)
    with pytest.raises(InvalidTrial, match=message):
        list(validation_data(loader(), rank=0, size=1, seed=7, whole=True)[0])


@pytest.mark.timeout(60)
def test_a_loader_that_the_trial_manages_is_read_again_as_the_next_epoch_unless_it_is_empty() -> None:
    batches = UnmanagedStream(DataLoader(Stream(), BATCH)).start(0, None)
    epochs = [list(islice(batches, 6)) for _ in range(2)]
    assert [records(epoch) for epoch in epochs] == [list(range(RECORDS))] * 2
    with pytest.raises(InvalidTrial, match="DataLoader yielded no batches; expected at least one in every epoch"):
        next(UnmanagedStream(DataLoader(Nothing(), BATCH)).start(0, None))


def test_the_length_of_a_stream_that_workers_share_is_an_estimate() -> None:
    """20 records make 5 batches of 4, but two workers with 10 records each make 6 batches."""

    class Even(Lying):
        def order(self) -> list[int]:
            return [number for number in super().order() if number < 20]

    assert records(read(data_of(DataLoader(Even(20), BATCH, num_workers=2)), 6)) == list(range(20))


@pytest.mark.parametrize("case", ["workers", "torchdata, workers", "own way, workers"])
def test_closing_ends_the_data_workers(case: str) -> None:
    others = set(multiprocessing.active_children())
    stream = data_of(LOADERS[case]())
    batches = stream.start(0, None)
    next(batches)
    workers = set(multiprocessing.active_children()) - others
    assert len(workers) == 2
    stream.close()
    stream.close()
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive()
    assert list(batches) == []


def test_worker_init_fn_finds_the_dataset() -> None:
    class Configured(Stream):
        first = 0

        def order(self) -> list[int]:
            return [self.first, self.first + 1]

    def configure(worker: int) -> None:
        get_worker_info().dataset.first = 100 * worker

    batches = read(data_of(DataLoader(Configured(), 2, num_workers=2, worker_init_fn=configure)), 2)
    assert records(batches) == [0, 1, 100, 101]


@pytest.mark.parametrize("case", ["stream", "workers", "state", "own way", *soak("torchdata, workers")])
def test_every_validation_reads_the_same_batches(case: str) -> None:
    everything, total = validation_data(LOADERS[case](), rank=0, size=2, seed=7, whole=True)
    expected = [batch.tolist() for batch in everything]
    assert total == (6 if case == "own way" else None)
    assert len(expected) == 6
    for rank in range(2):
        share, _ = validation_data(LOADERS[case](), rank=rank, size=2, seed=7, whole=False)
        for _ in range(2):
            assert [batch.tolist() for batch in share] == expected[rank::2]


def test_validation_data_has_the_length_of_its_share() -> None:
    share, total = validation_data(DataLoader(SizedStream(), BATCH), rank=1, size=4, seed=7, whole=False)
    assert (len(share), total) == (2, 6)
    unknown, _ = validation_data(DataLoader(Stream(), BATCH), rank=1, size=4, seed=7, whole=False)
    with pytest.raises(TypeError, match="Stream"):
        len(unknown)
