"""Map-style data is divided exactly among ranks, starts at any batch, and is moved to the device."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import namedtuple
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from det_torch import DataLoader, PyTorchTrial, PyTorchTrialContext, samplers
from det_torch._adapter import PyTorchAdapter
from det_torch._data import to_device, training_data, validation_data
from det_torch._random import seed_all
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import BatchSampler, Dataset, RandomSampler, SequentialSampler, TensorDataset

from det_core.errors import InvalidTrial

RECORDS, BATCH = 23, 4


class Augmented(Dataset[Any]):
    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index, torch.rand(()).item(), np.random.rand()], dtype=torch.float64)

    def __len__(self) -> int:
        return RECORDS


class Fragile(Augmented):
    def __getitem__(self, index: int) -> Any:
        return index if index < 2 else os._exit(3)


class Slow(Augmented):
    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(2)
        return super().__getitem__(index)


def stateful(**options: Any) -> Any:
    return pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader(Augmented(), BATCH, **options)


LOADERS: dict[str, Callable[[], Any]] = {
    "workers": lambda: DataLoader(Augmented(), BATCH, shuffle=True, num_workers=2),
    "persistent": lambda: DataLoader(Augmented(), BATCH, shuffle=True, num_workers=2, persistent_workers=True),
    "batch sampler": lambda: DataLoader(
        Augmented(), batch_sampler=BatchSampler(RandomSampler(range(RECORDS)), BATCH, False), num_workers=1
    ),
    "collate": lambda: DataLoader(Augmented(), BATCH, shuffle=True, collate_fn=torch.stack, num_workers=1),
    "torchdata": lambda: stateful(shuffle=True, num_workers=1),
}


def data_of(loader: Any, **options: Any) -> Any:
    return training_data(loader, **{"rank": 0, "size": 1, "seed": 7, **options})


def read(stream: Any, count: int, number: int = 0) -> list[Any]:
    batches = [batch.tolist() for batch in islice(stream.start(number, stream.state()), count)]
    stream.close()
    return batches


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("case", LOADERS)
def test_data_starts_at_any_batch_without_a_state(case: str) -> None:
    stream = data_of(LOADERS[case]())
    expected = read(stream, 15)
    assert stream.state() is None
    assert stream.batches_per_epoch == 6
    for begin in (0, 6):
        epoch = [int(record[0]) for batch in expected[begin : begin + 6] for record in batch]
        assert sorted(epoch) == list(range(RECORDS))
    assert expected[:6] != expected[6:12]
    seed_all(99)
    assert read(data_of(LOADERS[case]()), 8, 7) == expected[7:]


class CountsPasses:
    """Sampler with its own state. Each pass starts one record later."""

    passes = 0

    def __iter__(self) -> Iterator[int]:
        self.passes += 1
        yield from ((index + self.passes) % RECORDS for index in range(RECORDS))

    def __len__(self) -> int:
        return RECORDS


class CountsPassesOfBatches(CountsPasses):
    def __iter__(self) -> Any:
        records = list(super().__iter__())
        yield from (records[begin : begin + BATCH] for begin in range(0, RECORDS, BATCH))

    def __len__(self) -> int:
        return -(-RECORDS // BATCH)


STATEFUL: dict[str, Callable[[], Any]] = {
    "sampler": lambda: DataLoader(Augmented(), BATCH, sampler=CountsPasses()),
    "no batches": lambda: DataLoader(Augmented(), None, sampler=CountsPasses()),
    "batch sampler": lambda: DataLoader(Augmented(), batch_sampler=CountsPassesOfBatches()),
    "below another": lambda: DataLoader(Augmented(), BATCH, sampler=samplers.RepeatSampler(CountsPasses())),
}


def records_of(batches: Any) -> list[list[Any]]:
    return [batch.reshape(-1, 3)[:, 0].tolist() for batch in batches]


@pytest.mark.parametrize("case", STATEFUL)
def test_a_sampler_with_its_own_state_continues_exactly(case: str) -> None:
    length = len(STATEFUL[case]())
    expected = records_of(islice(data_of(STATEFUL[case]()).start(0, None), 4 * length))
    assert expected[0] != expected[length], "epochs differ"
    for begin in (1, length, 3 * length - 1):
        stream = data_of(STATEFUL[case]())
        assert records_of(islice(stream.start(begin, None), 4 * length - begin)) == expected[begin:]


def test_a_sampler_with_its_own_state_is_drawn_for_epochs_without_a_share() -> None:
    def loader() -> Any:
        return DataLoader(Augmented(), RECORDS, sampler=CountsPasses())

    expected = records_of(islice(data_of(loader()).start(0, None), 12))
    for rank in range(3):
        own = data_of(loader(), rank=rank, size=3).start(0, None)
        assert records_of(islice(own, 4)) == expected[rank::3]


@pytest.mark.parametrize("case", STATEFUL)
def test_every_validation_is_the_same_with_a_sampler_that_has_state(case: str) -> None:
    batches, _ = validation_data(STATEFUL[case](), rank=0, size=1, seed=7, whole=False)
    assert records_of(batches) == records_of(batches)


TENSORS = {
    "images and labels": [torch.rand(RECORDS, 3, 5, 5), torch.arange(RECORDS)],
    "scalars": [torch.rand(RECORDS, dtype=torch.float64), torch.rand(RECORDS) > 0.5],
    "small numbers": [torch.rand(RECORDS, 2).bfloat16(), torch.randint(255, (RECORDS, 2), dtype=torch.uint8)],
    "no values": [torch.rand(RECORDS, 0)],
    "channels last": [torch.rand(RECORDS, 3, 5, 5).contiguous(memory_format=torch.channels_last)],
}


class NotIndexed(TensorDataset):
    """Dataset whose records torch reads one by one."""


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", TENSORS)
def test_batches_of_tensors_equal_those_of_their_records(case: str, workers: int) -> None:
    def batches(dataset: type[TensorDataset]) -> list[list[torch.Tensor]]:
        loader = DataLoader(dataset(*TENSORS[case]), BATCH, shuffle=True, num_workers=workers)
        return list(islice(data_of(loader).start(0, None), 13))

    for found, expected in zip(batches(TensorDataset), batches(NotIndexed), strict=True):
        assert type(found) is type(expected) is list
        for one, other in zip(found, expected, strict=True):
            assert (one.dtype, one.stride()) == (other.dtype, other.stride())
            assert torch.equal(one, other)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_sparse_tensors_are_refused_as_by_torch() -> None:
    loader = DataLoader(TensorDataset(torch.eye(RECORDS).to_sparse_csr()), BATCH)
    with pytest.raises(RuntimeError, match="sparse tensors are not currently supported"):
        next(data_of(loader).start(0, None))


def test_batches_of_tensors_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read_records, loader = [], DataLoader(TensorDataset(torch.arange(RECORDS)), BATCH, shuffle=True)
    get = TensorDataset.__getitem__
    monkeypatch.setattr(
        TensorDataset, "__getitem__", lambda self, index: read_records.append(index) or get(self, index)
    )
    batches = [one.tolist() for (one,) in islice(data_of(loader).start(0, None), 2 * len(loader))]
    assert read_records == batches


@pytest.mark.parametrize(
    "options",
    [
        {"sampler": [torch.tensor(3), torch.tensor(5)], "batch_size": 2},  # torch would take them for two dimensions
        {"batch_sampler": BatchSampler([True, True], 2, False)},
        {"batch_sampler": [(0, 1), (1, 0)]},
        {"batch_size": 2, "collate_fn": tuple},
    ],
)
def test_other_samplers_and_functions_get_their_records(options: Any) -> None:
    data = torch.arange(RECORDS * 2).reshape(RECORDS, 2)
    expected = list(torch.utils.data.DataLoader(NotIndexed(data), **options))
    found = list(islice(data_of(DataLoader(TensorDataset(data), **options)).start(0, None), len(expected)))
    assert repr(found) == repr(expected)


@pytest.mark.parametrize("size", [2, pytest.param(5, marks=pytest.mark.integration)])
def test_ranks_divide_the_batches_of_all_epochs(size: int) -> None:
    expected = read(data_of(LOADERS["collate"]()), 6 * size)
    for rank in range(size):
        stream = data_of(LOADERS["collate"](), rank=rank, size=size)
        assert stream.batches_per_epoch == -(-6 // size)
        assert read(stream, 6) == expected[rank::size]


@pytest.mark.parametrize("workers", [0, 1])
def test_starting_again_ends_the_previous_iterator(workers: int) -> None:
    stream = data_of(DataLoader(Augmented(), BATCH, num_workers=workers))
    first, second = stream.start(0, None), stream.start(2, None)
    assert list(first) == []
    assert next(second)[0, 0] == 2 * BATCH
    stream.close()


def test_closing_ends_persistent_workers() -> None:
    others = set(multiprocessing.active_children())
    stream = data_of(LOADERS["persistent"]())
    stream.close()
    batches = stream.start(0, None)
    next(batches)
    workers = set(multiprocessing.active_children()) - others
    assert len(workers) == 2
    stream.close()
    stream.close()
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive()


def test_a_data_worker_that_dies_is_an_error() -> None:
    stream = data_of(DataLoader(Fragile(), None, num_workers=1))
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        list(islice(stream.start(0, None), 4))
    stream.close()


@pytest.mark.integration
def test_a_data_worker_that_is_slower_than_the_timeout_is_an_error() -> None:
    stream = data_of(DataLoader(Slow(), 1, num_workers=1, timeout=0.2))
    with pytest.raises(RuntimeError, match="timed out after 0.2 seconds"):
        next(stream.start(0, None))
    stream.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_validation_data_is_read_whole_or_in_shares(workers: int) -> None:
    def loader() -> Any:
        return DataLoader(Augmented(), BATCH, num_workers=workers, persistent_workers=workers > 0)

    whole, total = validation_data(loader(), rank=1, size=2, seed=7, whole=True)
    assert (total, len(whole), len(whole.dataset)) == (6, 6, RECORDS)  # type: ignore[arg-type, attr-defined]
    assert [batch[:, 0].tolist() for batch in whole] == [
        list(range(begin, min(begin + BATCH, RECORDS))) for begin in range(0, RECORDS, BATCH)
    ]
    for rank in range(2):
        share, total = validation_data(loader(), rank=rank, size=2, seed=7, whole=False)
        for _ in range(2):
            assert [int(batch[0, 0]) for batch in share] == [BATCH * number for number in range(rank, 6, 2)]
        assert total == 6


def test_validation_data_may_be_distributed_by_its_sampler() -> None:
    def loader(rank: int) -> Any:
        return DataLoader(
            Augmented(), 1, sampler=torch.utils.data.DistributedSampler(Augmented(), 2, rank, shuffle=False)
        )

    shares = [validation_data(loader(rank), rank=rank, size=2, seed=7, whole=False) for rank in range(2)]
    assert [total for _, total in shares] == [24, 24]  # torch's sampler repeats a record to make them equal
    assert [[int(batch[0, 0]) for batch in share] for share, _ in shares] == [
        list(range(0, RECORDS, 2)),
        [*range(1, RECORDS, 2), 0],
    ]


class LengthLess:
    def __iter__(self) -> Iterator[Any]:
        return iter([[0, 1]])


@pytest.mark.parametrize(
    ("get", "method"),
    [
        (data_of, "build_training_data_loader"),
        (
            lambda loader: validation_data(loader, rank=0, size=1, seed=7, whole=False),
            "build_validation_data_loader",
        ),
    ],
)
@pytest.mark.parametrize(
    ("loader", "message"),
    [
        (lambda: [1, 2], r"\[1, 2\]; expected a det_torch.DataLoader"),
        (
            lambda: DataLoader(Augmented(), 32, drop_last=True),
            "a data loader of length 0: 23 records, batch_size 32, drop_last True",
        ),
        (lambda: DataLoader(Augmented(), batch_sampler=LengthLess()), "a data loader without a length; add __len__"),
    ],
)
def test_a_loader_that_cannot_be_read_is_an_error(get: Any, method: str, loader: Any, message: str) -> None:
    with pytest.raises(InvalidTrial, match=rf"{method}\(\) returned {message}"):
        get(loader())


Point = namedtuple("Point", "x y")
CPU = torch.device("cpu")


class TestGetDataLoader:
    def test_it_yields_the_share_of_a_worker(self) -> None:
        made = DataLoader(TensorDataset(torch.arange(10)), batch_size=2).get_data_loader(skip=1, num_replicas=2, rank=0)
        assert [batch[0].tolist() for batch in made] == [[4, 5], [8, 9]]

    def test_it_may_repeat(self) -> None:
        made = iter(DataLoader(TensorDataset(torch.arange(3)), batch_size=2).get_data_loader(repeat=True))
        assert [next(made)[0].tolist() for _ in range(3)] == [[0, 1], [2], [0, 1]]

    def test_a_loader_without_batches_is_refused(self) -> None:
        with pytest.raises(InvalidTrial, match="needs a batch sampler, but the loader of TensorDataset has none"):
            DataLoader(TensorDataset(torch.arange(3)), batch_size=None).get_data_loader()


class TestToDevice:
    def test_each_type_that_cannot_be_moved_is_warned_about_once(self, caplog: pytest.LogCaptureFixture) -> None:
        warned: set[type] = {int}
        assert to_device(["a", {"b": "c"}, 3], CPU, warned) == ["a", {"b": "c"}, 3]
        assert caplog.messages == ["str cannot be moved to the device cpu and is used as it is"]
        assert warned == {int, str}

    def test_moved_data_keeps_its_structure(self) -> None:
        batch = {"a": [torch.ones(2), (np.arange(3), "name", None)], "b": Point(np.float32([1, 2]), {"c": 3})}
        moved = to_device(batch, torch.device("meta"))
        assert moved["a"][0].device.type == moved["a"][1][0].device.type == moved["b"].x.device.type == "meta"
        assert type(moved["b"]) is Point
        assert moved["a"][1][1:] == ("name", None)
        assert moved["b"].y == {"c": 3}
        assert type(moved["a"][1]) is tuple

    def test_a_packed_sequence_is_moved(self) -> None:
        packed = pack_sequence([torch.ones(3), torch.ones(2)])
        moved = to_device([packed], torch.device("meta"))[0]
        assert type(moved) is type(packed)
        assert moved.data.device.type == "meta"
        assert torch.equal(moved.batch_sizes, packed.batch_sizes)

    def test_batches_of_other_libraries_move_themselves(self) -> None:
        class Batch:
            def to(self, device: torch.device) -> str:
                return f"on {device}"

        assert to_device((Batch(),), CPU) == ("on cpu",)

    @pytest.mark.parametrize("array", [np.arange(4)[::-1], np.broadcast_to(np.float64(2), (3,)), np.array([True])])
    def test_numeric_arrays_become_tensors(self, array: Any) -> None:
        moved = to_device(array, CPU)
        assert moved.numpy().dtype == array.dtype
        assert moved.tolist() == array.tolist()

    def test_other_arrays_stay(self) -> None:
        names = np.array(["a", "b"])
        assert to_device(names, CPU) is names

    @pytest.mark.gpu
    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
    def test_a_tensor_moves_from_pinned_memory_to_the_gpu_and_back(self) -> None:
        numbers = torch.arange(1 << 20)
        moved = to_device(numbers.pin_memory(), torch.device("cuda"))
        assert torch.equal(to_device(moved, CPU), numbers)


class SharesOutItself(PyTorchTrial):
    """Trial whose loader repeats and skips batches itself, because det's handling is switched off."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        context.experimental.disable_dataset_reproducibility_checks()
        self.seen: list[Any] = []

    def build_model(self) -> torch.nn.Module:
        return torch.nn.Linear(1, 1)

    def optimizer(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), 0.1)

    def train_batch(self, batch: Any, model: torch.nn.Module, epoch_idx: int, batch_idx: int) -> torch.Tensor:
        self.seen.append(batch.flatten().tolist())
        return model(batch).sum()

    def evaluate_batch(self, batch: Any, model: torch.nn.Module) -> dict[str, Any]:
        return {"first": batch[0]}

    def build_training_data_loader(self) -> DataLoader[Any]:
        order = samplers.RepeatBatchSampler(BatchSampler(SequentialSampler(range(5)), 2, drop_last=False))
        skipping = samplers.SkipBatchSampler(order, self.context.get_initial_batch())
        return DataLoader(torch.arange(5.0).reshape(5, 1), batch_sampler=skipping)

    def build_validation_data_loader(self) -> DataLoader[Any]:
        return DataLoader(torch.tensor([[7.0]]))


def test_loaders_may_do_everything_themselves(make_context: Any, tmp_path: Path) -> None:
    adapter = PyTorchAdapter(trial := SharesOutItself(context := make_context()), context)
    adapter.train(4, lambda: False)
    assert trial.seen == [[0, 1], [2, 3], [4], [0, 1]]
    assert adapter.validate(lambda: False) == {"first": 7.0}
    adapter.snapshot()(tmp_path)
    resumed = PyTorchAdapter(trial := SharesOutItself(context := make_context()), context, first_batch=4)
    resumed.load(tmp_path, batches_trained=4)
    resumed.train(2, lambda: False)
    assert trial.seen == [[2, 3], [4]]


class EndsAfterAnEpoch(SharesOutItself):
    def build_training_data_loader(self) -> DataLoader[Any]:
        return DataLoader(torch.arange(3.0).reshape(3, 1), 2)


def test_a_loader_that_does_everything_itself_may_end(make_context: Any) -> None:
    adapter = PyTorchAdapter(trial := EndsAfterAnEpoch(context := make_context()), context)
    adapter.train(5, lambda: False)
    assert trial.seen == [[0, 1], [2], [0, 1], [2], [0, 1]]
