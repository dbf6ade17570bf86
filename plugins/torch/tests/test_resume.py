"""A trial that is killed anywhere and resumed is bitwise equal to an uninterrupted one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from det_torch import DataLoader, LRScheduler, PyTorchCallback, PyTorchTrial, PyTorchTrialContext
from det_torch._adapter import PyTorchAdapter
from det_torch._random import rng_state, seed_all, set_rng_state
from lives import Life, never
from torch import nn
from torch.utils.data import (
    BatchSampler,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    WeightedRandomSampler,
    get_worker_info,
)

from det_core.errors import InvalidTrial

RECORDS, BATCH, BATCHES = 23, 4, 21
"""Six batches per epoch (five with drop_last), three and a half epochs."""
MODE = LRScheduler.StepMode


class Augmented(Dataset[Any]):
    """Records that differ at every reading, because all three generators draw their noise."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        noise = random.random() + np.random.rand() + torch.rand(1).item()
        return torch.arange(3.0) + index + noise, torch.tensor([float(index)])

    def __len__(self) -> int:
        return RECORDS


class AugmentedTogether(Augmented):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


class Still(Augmented):
    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.arange(3.0) + index, torch.tensor([float(index)])


class Streamed(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        own = range(RECORDS) if worker is None else range(worker.id, RECORDS, worker.num_workers)
        return map(Augmented().__getitem__, random.sample(own, len(own)))


class StreamedWithState(Streamed):
    at = 0

    def __iter__(self) -> Iterator[Any]:
        while self.at < RECORDS:
            self.at += 1
            yield Augmented()[self.at - 1]
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class GlobalShuffle(Sampler[int]):
    """Sampler that draws from the generators of Python and numpy."""

    def __iter__(self) -> Iterator[int]:
        order = np.random.permutation(RECORDS).tolist()
        random.shuffle(order)
        return iter(order)

    def __len__(self) -> int:
        return RECORDS


class EpochShuffle(GlobalShuffle):
    """Sampler with its own state, which `set_epoch` sets."""

    def __init__(self) -> None:
        self.epoch = -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter(np.random.default_rng(self.epoch).permutation(RECORDS).tolist())


class ShuffledBatches(Sampler[list[int]]):
    def __iter__(self) -> Iterator[list[int]]:
        batches = list(BatchSampler(SequentialSampler(range(RECORDS)), BATCH, drop_last=False))
        random.shuffle(batches)
        return iter(batches)

    def __len__(self) -> int:
        return 6


class VaryingBatches(ShuffledBatches):
    """Batch sampler whose passes have 1 to 6 batches."""

    def __iter__(self) -> Iterator[list[int]]:
        yield from islice(super().__iter__(), random.randint(1, 6))


class MyBatchSampler(BatchSampler):
    """Batch sampler of a class that det does not know."""


LOADERS: dict[str, Callable[[Dataset[Any]], dict[str, Any]]] = {
    "in_order": lambda data: {"batch_size": BATCH},
    "shuffle": lambda data: {"batch_size": BATCH, "shuffle": True},
    "shuffle_with_generator": lambda data: {
        "batch_size": BATCH, "shuffle": True, "generator": torch.Generator().manual_seed(random.randrange(99))
    },
    "drop_last": lambda data: {"batch_size": BATCH, "shuffle": True, "drop_last": True},
    "global_sampler": lambda data: {"batch_size": BATCH, "sampler": GlobalShuffle()},
    "epoch_sampler": lambda data: {"batch_size": BATCH, "sampler": EpochShuffle()},
    "weighted_sampler": lambda data: {
        "batch_size": BATCH,
        "sampler": WeightedRandomSampler([1.0] * RECORDS, RECORDS, generator=torch.Generator()),
    },
    "replacement": lambda data: {"batch_size": BATCH, "sampler": RandomSampler(data, True, 24)},
    "batch_sampler": lambda data: {"batch_sampler": ShuffledBatches()},
    "varying_batch_sampler": lambda data: {"batch_sampler": VaryingBatches()},
    "shuffled_batch_sampler": lambda data: {
        "batch_sampler": MyBatchSampler(RandomSampler(data, generator=torch.Generator()), BATCH, False)
    },
    "no_batching": lambda data: {"batch_size": None, "shuffle": True},
}  # fmt: skip


DATASETS: dict[str, type[Any]] = {
    "augmented": Augmented,
    "together": AugmentedTogether,
    "still": Still,
    "stream": Streamed,
    "stream-with-state": StreamedWithState,
}


class Data(PyTorchTrial):
    """Trial whose options are in the config's ``data``."""

    def build_training_data_loader(self) -> DataLoader[Any]:
        options = self.context.get_data_config()
        data = DATASETS[options.get("dataset", "augmented")]()
        return DataLoader(
            data, num_workers=options.get("workers", 0), **LOADERS[options.get("loader", "shuffle")](data)
        )

    def build_validation_data_loader(self) -> DataLoader[Any]:
        workers = self.context.get_data_config().get("validation_workers", 0)
        return DataLoader(Augmented(), BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0)

    def network(self) -> nn.Module:
        return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 1))

    def schedule(self, optimizer: torch.optim.Optimizer) -> tuple[Any, LRScheduler.StepMode] | None:
        mode = self.context.get_data_config().get("lr")
        if mode == "plateau":
            return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1), MODE.MANUAL_STEP
        if mode == "one_cycle":
            return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=BATCHES + 3), MODE.STEP_EVERY_BATCH
        return mode and (torch.optim.lr_scheduler.ExponentialLR(optimizer, np.float64(0.9)), MODE[mode])


def loss_of(model: nn.Module, batch: Any) -> dict[str, Any]:
    inputs, index = (part.reshape(-1, part.shape[-1]) for part in batch)
    if len(inputs) == 1:  # BatchNorm needs two
        inputs, index = inputs.repeat(2, 1), index.repeat(2, 1)
    return {"loss": ((model(inputs / 20) - index / 20) ** 2).mean(), "records": index.flatten(), "inputs": inputs}


class FrameworkDrives(Data):
    def build_model(self) -> nn.Module:
        return self.network()

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), lr=np.float64(0.01))

    def create_lr_scheduler(self, optimizer: torch.optim.Optimizer) -> LRScheduler | None:
        schedule = self.schedule(optimizer)
        return LRScheduler(*schedule) if schedule else None

    def train_batch(self, batch: Any, model: nn.Module, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        return {
            **loss_of(model, batch),
            "at": [epoch_idx, batch_idx],
            "lr": self.context.optimizers[0].param_groups[0]["lr"],
        }

    def evaluate_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        return {"validation_loss": loss_of(model, batch)["loss"] + torch.rand(())}


class UserDrives(Data):
    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        self.models = [context.wrap_model(self.network()) for _ in range(2)]
        self.optimizers = [
            context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)) for model in self.models
        ]
        self.group = self.optimizers[1].param_groups[0]
        schedule = self.schedule(self.optimizers[0])
        self.scheduler = context.wrap_lr_scheduler(*schedule) if schedule else None

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        self.group["lr"] *= 0.99  # through a reference from before a resume
        metrics = loss_of(self.models[0], batch)
        second = loss_of(self.models[1], batch)["loss"]
        self.context.backward(metrics["loss"] + second)
        for optimizer in self.optimizers:
            self.context.step_optimizer(optimizer)
        if self.context.get_data_config().get("lr") == "plateau":
            self.scheduler.step(metrics["loss"].item())
        return {**metrics, "second": second}

    def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
        losses = [loss_of(self.models[0], self.context.to_device(batch))["loss"] for batch in data_loader]
        return {"validation_loss": torch.stack(losses).mean() + torch.rand(())}


class UserAggregates(UserDrives):
    """Trial that aggregates gradients over batches itself, without det's aggregation."""

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        metrics = loss_of(self.models[0], batch)
        self.context.backward(metrics["loss"])
        if batch_idx % 4 == 3:
            self.optimizers[0].step()
            self.optimizers[0].zero_grad()
        return metrics


class Balances(UserDrives):
    """Trial that learns the weights of its losses, which belong to no model."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        self.balance = nn.Parameter(torch.zeros(2))
        self.optimizers[1].add_param_group({"params": [self.balance], "lr": 0.1})

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        losses = torch.stack([loss_of(model, batch)["loss"] for model in self.models])
        loss = (losses * self.balance.softmax(0)).sum()
        self.context.backward(loss)
        for optimizer in self.optimizers:
            self.context.step_optimizer(optimizer)
        return {"loss": loss}


class Averages64(torch.optim.SGD):
    """Optimizer with averages of gradients in higher precision than the weights."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for weight in self.param_groups[0]["params"]:
            state = self.state.setdefault(weight, {})
            state["average"] = 0.9 * state.get("average", torch.zeros(weight.shape)) + weight.grad.double()
            weight.data.sub_((0.01 * state["average"]).to(weight.dtype))


class Rounded(UserDrives):
    """Trial whose optimizer state has a higher precision than the weights, as with bfloat16 weights."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        super(UserDrives, self).__init__(context)
        self.model = context.wrap_model(nn.Linear(3, 1))
        self.sgd = context.wrap_optimizer(Averages64(self.model.parameters(), lr=0.01))

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        loss = self.model(batch[0].reshape(-1, 3) / 20).square().mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.sgd)
        return {"loss": loss}

    def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
        return {"validation_loss": 0.0}


class Freezes(UserDrives):
    """Trial that changes the flags of modules and parameters temporarily, across validations."""

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        norm = next(module for module in self.models[0].modules() if isinstance(module, nn.BatchNorm1d))
        weight = next(self.models[0].parameters())
        if batch_idx == 3:
            norm.eval()
            self.models[1].requires_grad_(False)
        if batch_idx == 11:
            norm.train()
            weight.requires_grad_(False)
        metrics = super().train_batch(batch, epoch_idx, batch_idx)
        assert norm.training is not (3 <= batch_idx < 11)
        return metrics


CASES: dict[str, tuple[type[PyTorchTrial], dict[str, Any], dict[str, Any]]] = {
    **{f"loader-{name}": (FrameworkDrives, {"loader": name}, {}) for name in LOADERS},
    **{f"lr-{mode.name}": (FrameworkDrives, {"lr": mode.name}, {}) for mode in MODE},
    "lr-one_cycle": (FrameworkDrives, {"lr": "one_cycle"}, {}),
    "lr-plateau": (UserDrives, {"lr": "plateau"}, {}),
    "not-augmented": (FrameworkDrives, {"dataset": "still"}, {}),
    "user-drives": (UserDrives, {}, {}),
    "user-aggregates": (UserAggregates, {}, {}),
    "aggregation": (FrameworkDrives, {"lr": "STEP_EVERY_BATCH"}, {"aggregation_frequency": 3}),
    "aggregation-user-drives": (UserDrives, {"lr": "STEP_EVERY_EPOCH"}, {"aggregation_frequency": 3}),
    "parameters-of-no-model": (Balances, {}, {"aggregation_frequency": 3}),
    "rounded": (Rounded, {}, {}),
    "modes": (Freezes, {}, {}),
    "aggregation-of-sums": (UserDrives, {}, {"aggregation_frequency": 3, "average_aggregated_gradients": False}),
    "together": (UserDrives, {"dataset": "together"}, {}),
    "workers": (FrameworkDrives, {"workers": 2, "lr": "STEP_EVERY_EPOCH", "validation_workers": 1}, {}),
    "stream": (FrameworkDrives, {"dataset": "stream", "loader": "in_order"}, {}),
    "stream-workers": (UserDrives, {"dataset": "stream", "loader": "in_order", "workers": 2}, {}),
    "no_batching-aggregation": (FrameworkDrives, {"loader": "no_batching"}, {"aggregation_frequency": 3}),
    "stream-with-state": (
        UserDrives,
        {"dataset": "stream-with-state", "loader": "in_order"},
        {"aggregation_frequency": 3},
    ),
}


@pytest.mark.integration
@pytest.mark.parametrize("case", CASES)
def test_a_resumed_trial_equals_an_uninterrupted_one(
    case: str, make_context: Any, fingerprint: Any, tmp_path: Path
) -> None:
    trial_class, data, optimizations = CASES[case]
    keys = {"data": data, "optimizations": optimizations}
    # 7, 8 and 10 lie within one epoch and within windows of aggregation; 12 ends an epoch. Each piece and each epoch
    # starts data workers.
    *stops, batches = [8, 12, 13] if data.get("workers") else [7, 8, 10, 12, BATCHES]
    undisturbed = Life(trial_class, make_context, tmp_path, **keys)
    expected = undisturbed.live([batches])
    killed = Life(trial_class, make_context, tmp_path, **keys)
    found = killed.live([*stops, batches])
    assert len(killed.rows) == batches
    assert fingerprint(killed.rows) == fingerprint(undisturbed.rows)
    assert fingerprint(killed.validations) == fingerprint(undisturbed.validations)
    assert fingerprint(found) == fingerprint(expected)


@pytest.mark.parametrize("trial_class", [FrameworkDrives, UserDrives])
def test_a_trial_killed_after_every_batch_equals_an_uninterrupted_one(
    trial_class: type[PyTorchTrial], make_context: Any, fingerprint: Any, tmp_path: Path
) -> None:
    keys = {"data": {"lr": "STEP_EVERY_BATCH"}, "optimizations": {"aggregation_frequency": 2}}
    undisturbed, killed = (Life(trial_class, make_context, tmp_path, **keys) for _ in range(2))
    assert fingerprint(undisturbed.live([BATCHES])) == fingerprint(killed.live([*range(1, BATCHES + 1)]))
    assert fingerprint(undisturbed.rows) == fingerprint(killed.rows)


def test_validation_does_not_change_training(make_context: Any, fingerprint: Any, tmp_path: Path) -> None:
    seldom, often = (Life(UserDrives, make_context, tmp_path) for _ in range(2))
    assert fingerprint(seldom.live([12], ())) == fingerprint(often.live([12], (1, 5, 9)))
    assert fingerprint(seldom.rows) == fingerprint(often.rows)


@pytest.mark.parametrize("workers", [0, 2])
def test_each_epoch_has_its_own_order_and_every_record_once(workers: int, make_context: Any, tmp_path: Path) -> None:
    life = Life(FrameworkDrives, make_context, tmp_path, data={"workers": workers})
    life.live([12], ())
    epochs = [[record for row in life.rows[begin : begin + 6] for record in row["records"]] for begin in (0, 6)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(RECORDS))] * 2
    assert epochs[0] != epochs[1]


def test_another_seed_gives_another_order(make_context: Any, tmp_path: Path) -> None:
    one, two = (
        Life(FrameworkDrives, lambda seed=seed, **keys: make_context(seed=seed, **keys), tmp_path) for seed in (1, 2)
    )
    one.live([6], ()), two.live([6], ())
    assert [[*row["records"]] for row in one.rows] != [[*row["records"]] for row in two.rows]


def test_workers_draw_anew_in_every_epoch(make_context: Any, tmp_path: Path) -> None:
    life = Life(FrameworkDrives, make_context, tmp_path, data={"workers": 2, "loader": "in_order"})
    life.live([12], ())
    assert np.array_equal(life.rows[0]["records"], life.rows[6]["records"])
    assert not np.array_equal(life.rows[0]["inputs"], life.rows[6]["inputs"])


def test_skipped_batches_are_not_read(make_context: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = Life(FrameworkDrives, make_context, tmp_path).live([11], ())
    reads: list[int] = []
    read = Augmented.__getitem__
    monkeypatch.setattr(Augmented, "__getitem__", lambda self, index: reads.append(index) or read(self, index))
    context = make_context()
    adapter = PyTorchAdapter(FrameworkDrives(context), context)
    adapter.load(checkpoint, batches_trained=11)
    adapter.train(1, never)
    assert len(reads) == 3  # the last batch of the second epoch
    assert context.get_initial_batch() == 11


@pytest.mark.parametrize("batches", [2, 0])
def test_data_of_another_length_is_named(
    batches: int, make_context: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A start with the weights of another trial needs no data of the same length."""
    checkpoint = Life(FrameworkDrives, make_context, tmp_path, data={"dataset": "still"}).live([2], ())
    context = make_context(data={"dataset": "still"})
    monkeypatch.setattr(Still, "__len__", lambda self: 19)
    PyTorchAdapter(FrameworkDrives(context), context).load(checkpoint, batches_trained=batches)
    assert caplog.messages == batches // 2 * [
        "the training data has 19 records, but had 23 when the checkpoint was saved, so its batches differ from those "
        "of an uninterrupted training; restore the data, or begin a new experiment"
    ]


def test_parameters_of_no_model_with_another_shape_are_an_error(make_context: Any, tmp_path: Path) -> None:
    class Others(Balances):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            group = self.optimizers[1].param_groups[-1]
            group["params"][0].data = torch.zeros(3)

    checkpoint = Life(Balances, make_context, tmp_path).live([2], ())
    with pytest.raises(InvalidTrial, match=r"outside of wrapped models with the shapes .*2.* but the trial has .*3"):
        Life(Others, make_context, tmp_path)._piece(checkpoint, 2, 3, [])


def test_random_numbers_that_callbacks_draw_before_training_do_not_matter(
    make_context: Any, tmp_path: Path, fingerprint: Any
) -> None:
    """A resumed run calls `on_training_start` once more."""

    class Draws(PyTorchCallback):
        def on_training_start(self) -> None:
            torch.rand(3), np.random.rand(), random.random()

    class Drawing(UserDrives):
        def build_callbacks(self) -> dict[str, PyTorchCallback]:
            return {"draws": Draws()}

    def begin(checkpoint: Path | None = None) -> PyTorchAdapter:
        context = make_context()
        seed_all(1)
        adapter = PyTorchAdapter(Drawing(context), context)
        if checkpoint:
            adapter.load(checkpoint, batches_trained=3)
        adapter.started()
        return adapter

    first = begin()
    first.train(3, never)
    first.snapshot()(tmp_path)
    expected = first.train(2, never)
    assert fingerprint(begin(tmp_path).train(2, never)) == fingerprint(expected)


def test_the_generators_of_all_gpus_continue_on_other_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may resume on another GPU. Generators belong to GPUs in cyclic order from its own."""
    generators, own = {0: torch.tensor(10), 1: torch.tensor(11), 2: torch.tensor(12)}, 0

    def restore(state: torch.Tensor, gpu: int | None = None) -> None:
        generators[own if gpu is None else gpu] = state

    for name, function in {
        "is_initialized": lambda: True,
        "is_available": lambda: True,
        "device_count": lambda: len(generators),
        "current_device": lambda: own,
        "get_rng_state": lambda gpu=None: generators[own if gpu is None else gpu],
        "set_rng_state": restore,
    }.items():
        monkeypatch.setattr(torch.cuda, name, function)
    state, own = rng_state(), 1
    set_rng_state(state)
    assert [generators[gpu].item() for gpu in range(3)] == [12, 10, 11]


class Thaws(UserDrives):
    """Trial that adds a group of parameters to its optimizer during training."""

    def add_group(self) -> None:
        self.optimizers[0].add_param_group({"params": [self.loose], "lr": 0.5})

    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        self.loose = nn.Parameter(torch.ones(1))

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        if batch_idx == 2:
            self.add_group()
        return super().train_batch(batch, epoch_idx, batch_idx)


class ThawsAgain(Thaws):
    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        class AddGroup(PyTorchCallback):
            def on_checkpoint_load_start(_, checkpoint: Any) -> None:
                if len(checkpoint["optimizers_state_dict"][0]["param_groups"]) == 2:
                    self.add_group()

        return {"add group": AddGroup()}


def test_groups_added_during_training_must_be_added_again(make_context: Any, fingerprint: Any, tmp_path: Path) -> None:
    """A callback adds the groups again. Without the callback, the error says that one is needed."""
    message = r"groups of \[6, 1\] parameters for SGD, but the trial has \[6\].*on_checkpoint_load_start"
    with pytest.raises(InvalidTrial, match=message):
        Life(Thaws, make_context, tmp_path).live([3, 5], ())
    whole, pieces = (Life(ThawsAgain, make_context, tmp_path).live(ends, ()) for ends in ([5], [1, 3, 5]))
    assert fingerprint(whole) == fingerprint(pieces)


class OtherOptimizers(UserDrives):
    """Trial with other optimizers, which have the parameters in another order."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        super(UserDrives, self).__init__(context)
        self.models = [context.wrap_model(self.network()) for _ in range(2)]
        self.optimizers = [
            context.wrap_optimizer(torch.optim.Adagrad([*model.parameters()][::-1], lr=0.01)) for model in self.models
        ]
        self.group = self.optimizers[1].param_groups[0]


class TestWarmStart:
    """Tests of a start at batch 0 with the weights of another trial."""

    @pytest.mark.parametrize("trial_class", [UserDrives, OtherOptimizers])
    def test_a_warm_start_takes_the_weights_only(
        self, trial_class: type[UserDrives], make_context: Any, fingerprint: Any, tmp_path: Path
    ) -> None:
        checkpoint = Life(UserDrives, make_context, tmp_path, data={"lr": "STEP_EVERY_BATCH"}).live([5], ())
        saved = torch.load(checkpoint / "state_dict.pth", weights_only=True)
        context = make_context(seed=12, data={"lr": "STEP_EVERY_BATCH"})
        adapter = PyTorchAdapter(trial_class(context), context)
        begun = [fingerprint(optimizer.state_dict()) for optimizer in context.optimizers]
        adapter.load(checkpoint, batches_trained=0)
        assert fingerprint([model.state_dict() for model in context.models]) == fingerprint(saved["models_state_dict"])
        assert [fingerprint(optimizer.state_dict()) for optimizer in context.optimizers] == begun
        assert context.current_train_batch() == context.get_initial_batch() == 0
        assert len(adapter.train(1, never)) == 1
