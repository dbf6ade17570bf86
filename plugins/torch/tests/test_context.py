"""The context without a training loop, as in debugging, and its conversion of data."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from det_torch import DataLoader, PyTorchTrial, PyTorchTrialContext
from det_torch._context import choose_gpu
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from det_core.errors import InvalidTrial

Point = namedtuple("Point", ["x", "y"])


class MyPyTorchTrial(PyTorchTrial):
    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(nn.Linear(2, 1))
        self.sgd = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=context.get_hparam("lr")))

    def build_training_data_loader(self) -> Any:
        return DataLoader(TensorDataset(torch.ones(8, 2)), batch_size=self.context.get_per_slot_batch_size())

    build_validation_data_loader = build_training_data_loader

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        loss = self.model(self.context.to_device(batch)[0]).pow(2).mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.sgd)
        return {"loss": loss, "first": self.context.is_epoch_start(), "last": self.context.is_epoch_end()}

    def evaluate_batch(self, batch: Any) -> Any:
        return {}


def test_a_trial_can_be_trained_by_hand(example_config: dict[str, Any]) -> None:
    """The code follows the example of the documentation."""
    config = {**example_config, "hyperparameters": {"global_batch_size": 4, "lr": 0.1}}
    context = PyTorchTrialContext.from_config(config)
    my_trial = MyPyTorchTrial(context)
    train_ds = my_trial.build_training_data_loader()
    losses = []
    for epoch_idx in range(3):
        for batch_idx, batch in enumerate(train_ds):
            metrics = my_trial.train_batch(batch, epoch_idx, batch_idx)
            losses.append(metrics["loss"].item())
            assert (metrics["first"], metrics["last"]) == (True, False)
    assert len(losses) == 6
    assert losses == sorted(losses, reverse=True)
    assert context.models == [my_trial.model]
    assert context.optimizers == [my_trial.sgd]
    assert context.lr_schedulers == []
    assert (context.get_model(), context.get_optimizer(), context.get_lr_scheduler()) == (
        my_trial.model,
        my_trial.sgd,
        None,
    )
    context.wrap_model(nn.Linear(1, 1))
    with pytest.raises(InvalidTrial, match="exactly one wrapped model, but there are 2"):
        context.get_model()
    assert (context.current_train_batch(), context.current_train_epoch(), context.get_initial_batch()) == (0, 0, 0)


class TestOptimizer:
    def wrapped(self, context: PyTorchTrialContext) -> tuple[nn.Parameter, torch.optim.Optimizer]:
        model = context.wrap_model(nn.Linear(1, 1, bias=False))
        return model.weight, context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=1.0))

    def test_step_optimizer_zeroes_gradients_by_default(self, make_context: Any) -> None:
        context = make_context()
        weight, sgd = self.wrapped(context)
        for auto_zero_grads in (False, True):
            context.backward(weight.sum())
            context.step_optimizer(sgd, auto_zero_grads=auto_zero_grads)
            assert (weight.grad is None) is auto_zero_grads

    def test_step_optimizer_clips_the_averaged_gradients(self, make_context: Any) -> None:
        context = make_context(optimizations={"aggregation_frequency": 2})
        weight, sgd = self.wrapped(context)
        seen = []
        before = weight.item()
        for batch, factor in enumerate([3.0, 5.0]):
            context._loop.batch = batch
            context.backward((weight * factor).sum())
            context.step_optimizer(sgd, clip_grads=lambda params: seen.extend(p.grad.item() for p in params))
        assert seen == [4.0]
        assert weight.item() == pytest.approx(before - 4.0)

    def test_backward_passes_its_arguments_on(self, make_context: Any) -> None:
        context = make_context()
        weight, _ = self.wrapped(context)
        outputs = weight * torch.ones(2, 1)
        context.backward(outputs, gradient=torch.tensor([[1.0], [2.0]]), retain_graph=True)
        context.backward(outputs.sum(), create_graph=False)
        assert weight.grad.item() == 5.0

    def test_step_optimizer_refuses_optimizers_that_are_not_wrapped(self, make_context: Any) -> None:
        with pytest.raises(InvalidTrial, match="call wrap_optimizer first"):
            make_context().step_optimizer(torch.optim.SGD([torch.zeros(1, requires_grad=True)]))

    def test_aggregation_requires_that_det_zeroes_gradients(self, make_context: Any) -> None:
        context = make_context(optimizations={"aggregation_frequency": 2})
        _, sgd = self.wrapped(context)
        with pytest.raises(InvalidTrial, match=r"aggregation_frequency is 2.*auto_zero_grads"):
            context.step_optimizer(sgd, auto_zero_grads=False)

    @pytest.mark.parametrize(
        ("config", "argument", "expected"), [(True, None, 4.0), (True, False, 8.0), (False, True, 4.0)]
    )
    def test_an_argument_overrides_the_averaging_in_the_config(
        self, config: bool, argument: bool | None, expected: float, make_context: Any
    ) -> None:
        context = make_context(optimizations={"aggregation_frequency": 2, "average_aggregated_gradients": config})
        model = context.wrap_model(nn.Linear(1, 1, bias=False))
        sgd = context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=1.0), average_aggregated_gradients=argument)
        before = model.weight.item()
        for factor in (3.0, 5.0):
            context.backward((model.weight * factor).sum())
            context.step_optimizer(sgd)
            context._loop.end_batch(context.lr_schedulers, context.aggregation_frequency)
        assert model.weight.item() == pytest.approx(before - expected)

    @pytest.mark.parametrize(("aggregation", "expected"), [(1, [8.0, 8.0]), (2, [8.0])])
    def test_backward_passes_of_a_batch_add_up(
        self, aggregation: int, expected: list[float], make_context: Any
    ) -> None:
        context = make_context(optimizations={"aggregation_frequency": aggregation})
        model = context.wrap_model(nn.Linear(1, 1, bias=False))
        sgd = context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=1.0), backward_passes_per_step=2)
        seen: list[float] = []
        for _ in range(2):
            context.backward((model.weight * 3).sum())
            context.backward((model.weight * 5).sum())
            context.step_optimizer(sgd, clip_grads=lambda params: seen.extend(p.grad.item() for p in params))
            context._loop.end_batch(context.lr_schedulers, context.aggregation_frequency)
        assert seen == expected

    def test_two_optimizers_step_in_one_batch(self, make_context: Any) -> None:
        context = make_context(optimizations={"aggregation_frequency": 2})
        pairs = [self.wrapped(context) for _ in range(2)]
        before = [weight.item() for weight, _ in pairs]
        for factor in (1.0, 3.0):
            for weight, sgd in pairs:
                context.backward((weight * factor).sum())
                context.step_optimizer(sgd)
            context._loop.end_batch(context.lr_schedulers, context.aggregation_frequency)
        assert [weight.item() for weight, _ in pairs] == pytest.approx([value - 2.0 for value in before])
        assert all(weight.grad is None for weight, _ in pairs)

    @pytest.mark.parametrize("passes", [0, 1.5, None])
    def test_wrap_optimizer_refuses_invalid_numbers_of_passes(self, passes: Any, make_context: Any) -> None:
        with pytest.raises(InvalidTrial, match=f"backward_passes_per_step is {passes}; expected an integer"):
            make_context().wrap_optimizer(torch.optim.SGD([torch.zeros(1)]), backward_passes_per_step=passes)


class TestPosition:
    def test_without_a_length_the_first_epoch_never_ends(self, make_context: Any) -> None:
        context = make_context()
        assert context._loop.batches_per_epoch is None
        seen = []
        for _ in range(3):
            seen.append((context.current_train_epoch(), context.is_epoch_start(), context.is_epoch_end()))
            context._loop.end_batch(context.lr_schedulers, context.aggregation_frequency)
        assert seen == [(0, True, False), (0, False, False), (0, False, False)]
        assert context.current_train_batch() == 3


class TestTensorboard:
    @pytest.mark.integration
    def test_the_writer_comes_from_the_run(self, make_context: Any, tmp_path: Path) -> None:
        from det_torch._tensorboard import TrialTensorboard

        context = make_context()
        context._loop.tensorboard = TrialTensorboard(SimpleNamespace(get_tensorboard_path=lambda: tmp_path))
        assert context.get_tensorboard_path() == tmp_path
        writer = context.get_tensorboard_writer()
        assert writer is context.get_tensorboard_writer()
        writer.add_scalar("loss", 1.0, 1)
        writer.close()
        assert list(tmp_path.glob("events.out.tfevents.*"))

    @pytest.mark.parametrize("method", ["get_tensorboard_path", "get_tensorboard_writer", "set_profiler"])
    def test_tensorboard_needs_a_run(self, method: str, make_context: Any) -> None:
        with pytest.raises(InvalidTrial, match="stores no TensorBoard files"):
            getattr(make_context(), method)()

    def test_logging_can_be_switched_off(self, make_context: Any) -> None:
        context = make_context()
        assert context.get_enable_tensorboard_logging() is True
        context.set_enable_tensorboard_logging(False)
        assert context.get_enable_tensorboard_logging() is False
        with pytest.raises(AssertionError, match="must be True or False, not 1"):
            context.set_enable_tensorboard_logging(1)

    def test_profilers_write_traces_to_the_tensorboard_path(self, make_context: Any, tmp_path: Path) -> None:
        context = make_context()
        assert context._loop.profiler is None
        context._loop.tensorboard = SimpleNamespace(path=tmp_path)
        context.set_profiler(
            activities=[torch.profiler.ProfilerActivity.CPU],
            schedule=torch.profiler.schedule(wait=0, warmup=1, active=1, repeat=1),
        )
        with context._loop.profiler as profiler:
            for _ in range(3):
                torch.ones(2).sum()
                profiler.step()
        (trace,) = tmp_path.glob("*.pt.trace.json")
        assert "aten::sum" in trace.read_text()

    def test_traces_go_to_the_handler_of_the_trial(self, make_context: Any) -> None:
        traces: list[Any] = []
        context = make_context()
        context.set_profiler(activities=[torch.profiler.ProfilerActivity.CPU], on_trace_ready=traces.append)
        with context._loop.profiler:
            torch.ones(2).sum()
        assert traces == [context._loop.profiler]


class TestReducers:
    @pytest.mark.parametrize("through", [lambda context: context, lambda context: context.experimental])
    def test_reducers_are_wrapped_and_reset(self, through: Any, make_context: Any) -> None:
        context = make_context()
        maximum = through(context).wrap_reducer(max, name="maximum", for_training=False)
        for value in (2, 7, 5):
            maximum.update(value)
        assert through(context).reduce_metrics(for_training=False) == {"maximum": 7}
        assert through(context).reduce_metrics(for_training=True) == {}
        through(context).reset_reducers()
        maximum.update(3)
        assert through(context).reduce_metrics(for_training=False) == {"maximum": 3}


class TestExperimental:
    def test_batches_stay_where_they_are_if_the_trial_moves_them(self, make_context: Any) -> None:
        context = make_context()
        assert context._loop.moves_batches
        context.experimental.disable_auto_to_device()
        assert not context._loop.moves_batches

    def test_loaders_may_do_everything_by_themselves(self, make_context: Any) -> None:
        context = make_context()
        assert not context._loop.data_as_is
        context.experimental.disable_dataset_reproducibility_checks()
        assert context._loop.data_as_is


class TestToDevice:
    def test_moved_data_keeps_its_structure(self, make_context: Any) -> None:
        tensor, array = torch.ones(2), np.arange(3, dtype=np.int64)
        data = {
            "data": [{"a": tensor}, array, "text", None, 7],
            "label": (tensor, array),
            "point": Point(tensor, {"y": array}),
            "names": np.array(["a", "b"]),
        }
        moved = make_context().to_device(data)
        assert moved["data"][0]["a"] is tensor
        assert moved["data"][2:] == ["text", None, 7]
        assert isinstance(moved["label"], tuple)
        assert isinstance(moved["point"], Point)
        assert moved["names"] is data["names"]
        for converted in (moved["data"][1], moved["label"][1], moved["point"].y["y"]):
            assert torch.equal(converted, torch.arange(3))

    @pytest.mark.parametrize(
        "array", [np.arange(4)[::-1], np.broadcast_to(np.float32(1), 3), np.array(2.5), np.zeros(0)]
    )
    def test_arrays_that_torch_cannot_share_are_converted(self, array: np.ndarray[Any, Any], make_context: Any) -> None:
        moved = make_context().to_device(array)
        assert moved.numpy().tolist() == array.tolist()
        assert moved.numpy().dtype == array.dtype

    def test_packed_sequences_are_moved(self, make_context: Any) -> None:
        packed = nn.utils.rnn.pack_sequence([torch.ones(2), torch.ones(1)])
        assert isinstance(make_context().to_device([packed])[0], nn.utils.rnn.PackedSequence)


def arrays(size: int) -> Any:
    return np.full((size, 2), 1.0)


def tensors(size: int) -> Any:
    return torch.full((size, 2), 1.0)


BATCHES: list[Any] = [
    arrays,
    tensors,
    lambda size: (arrays(size), tensors(size)),
    lambda size: [tensors(size), arrays(size)],
    lambda size: {"data": tensors(size), "label": arrays(size)},
    lambda size: {
        "data": [{"sub_data1": tensors(size)}, {"sub_data2": arrays(size)}],
        "label": (tensors(size), tensors(size)),
    },
]


class Indices(Dataset[int]):
    def __getitem__(self, index: int) -> int:
        return index

    def __len__(self) -> int:
        return 6


@pytest.mark.parametrize("collate", BATCHES)
@pytest.mark.parametrize("by_hand", [True, False])
def test_batches_of_every_structure_reach_the_trial(collate: Any, by_hand: bool, make_context: Any) -> None:
    from det_torch._adapter import PyTorchAdapter

    def shape(data: Any) -> Any:
        if isinstance(data, dict):
            return {key: shape(value) for key, value in data.items()}
        return type(data)(map(shape, data)) if isinstance(data, (list, tuple)) else type(data)

    seen: list[Any] = []

    class Trial(MyPyTorchTrial):
        def build_training_data_loader(self) -> Any:
            return DataLoader(Indices(), batch_size=2, collate_fn=lambda records: collate(len(records)))

        build_validation_data_loader = build_training_data_loader

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            seen.append(batch)
            return {"loss": 0.0}

        def evaluate_batch(self, batch: Any) -> Any:
            return {"same": shape(batch) == shape(seen[-1])}

    context = make_context(hparams={"lr": 0.1})
    trial = Trial(context)
    if by_hand:
        batches = list(trial.build_training_data_loader())
        assert [shape(batch) for batch in batches] == [shape(collate(2))] * 3
        return
    adapter = PyTorchAdapter(trial, context)
    adapter.train(4, lambda: False)
    expected = collate(2)
    assert [shape(batch) for batch in seen] == [shape(context.to_device(expected))] * 4
    assert adapter.validate(lambda: False) == {"same": 1.0}


def test_the_loader_has_all_of_torchs_arguments() -> None:
    loader = DataLoader(
        Indices(),
        batch_size=2,
        shuffle=True,
        num_workers=1,
        collate_fn=list,
        pin_memory=False,
        drop_last=True,
        timeout=30,
        worker_init_fn=None,
        multiprocessing_context=None,
        generator=torch.Generator().manual_seed(1),
        prefetch_factor=3,
        persistent_workers=True,
    )
    assert sorted(index for batch in loader for index in batch) == list(range(6))
    assert isinstance(loader, torch.utils.data.DataLoader)


def test_a_slot_uses_the_gpu_of_its_local_rank() -> None:
    """A scheduler may show each process a single GPU. That GPU has index 0 for any local rank."""
    assert [choose_gpu(rank, 4) for rank in range(4)] == [0, 1, 2, 3]
    assert [choose_gpu(rank, 1) for rank in range(4)] == [0] * 4
    with pytest.raises(InvalidTrial, match=r"local rank 2 has no GPU: its process sees 2; use at most 2 slots"):
        choose_gpu(2, 2)
