"""Checks of a script and of `FSDPBackend` on two slots. As a program, this module prints which checks passed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import det_torch
import pytest
import torch
import torch.distributed as dist
from det_torch import PyTorchTrialContext
from det_torch.process_group import broadcast_tensors
from det_torch.sharding import read_sharded_state
from det_torch.testing.code.model_def import Adversaries
from det_torch_distributed._ddp import DDPBackend
from det_torch_distributed._fsdp import FSDPBackend
from det_torch_distributed._options import TorchDistributedOptions
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

from det_core.config import parse_config
from det_core.errors import InvalidTrial, RankFailed

RANK = int(os.environ.get("RANK", "0"))
BATCH = torch.rand(2, 8, generator=torch.Generator().manual_seed(2))
CONFIG = {
    "entrypoint": "none:None",
    "hyperparameters": {"global_batch_size": 4},
    "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 10}},
}


class Tied(nn.Module):
    """Model that reads and writes with one weight, with a compiled block in between."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.write = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
        self.write.weight = self.read.weight
        self.block: Any = torch.compile(nn.Linear(4, 4), backend="eager")

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.write(self.block(self.read(words)).tanh())  # type: ignore[no-any-return]


class Scaled(nn.Module):
    """Model with its own weights, which it uses before and after its layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.scale, self.layers = nn.Parameter(torch.rand(8)), nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, inputs: torch.Tensor, *order: int) -> torch.Tensor:
        scaled = inputs * self.scale
        for number in order or range(3):
            scaled = self.layers[number](scaled).tanh()
        return scaled * self.scale


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def data() -> torch.Tensor:
    return torch.rand(2, 4, 3, generator=torch.Generator().manual_seed(1))[RANK]


class Trainer:
    """Context with one model and its optimizer."""

    def __init__(self, model: nn.Module, *, lr: float = 0.1, **options: Any) -> None:
        self.context = PyTorchTrialContext(
            config=parse_config(CONFIG), hparams={"global_batch_size": 4}, trial_id=1, experiment_id=1, trial_seed=1,
            distributed=SLOTS,
        )  # fmt: skip
        self.backend = self.context.backend = FSDPBackend(
            self.context, TorchDistributedOptions(sharding="fsdp", **options)
        )
        self.model = self.context.wrap_model(model)
        self.optimizer = self.context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr))
        self.backend.ready()

    def whole(self) -> dict[str, torch.Tensor]:
        """Return the whole weights by name."""
        return {name: _whole(value) for name, value in self.model.state_dict().items()}


def _whole(value: Any) -> Any:
    return value.full_tensor() if isinstance(value, DTensor) else value


def a_script_trains() -> None:
    """`det_torch.init` finds the other slots and makes the process group, and a `Trainer` uses both."""
    trial = Adversaries(script)
    assert isinstance(trial.maker, DistributedDataParallel)
    det_torch.Trainer(trial, script).fit(max_length=det_torch.Batch(5))
    assert script.current_train_batch() == 5
    assert (dist.get_backend(), dist.get_rank(), dist.get_world_size()) == ("gloo", RANK, 2)


def each_slot_has_a_part() -> None:
    trainer = Trainer(network(), units=["Linear"])
    assert all(isinstance(weight, DTensor) for weight in trainer.model.parameters())
    held = sum(weight.to_local().numel() for weight in trainer.model.parameters())  # type: ignore[attr-defined]
    assert held < 0.7 * sum(weight.numel() for weight in network().parameters())
    assert sum(isinstance(module, FSDPModule) for module in trainer.model.modules()) == 3


def weights_are_the_chiefs() -> None:
    torch.manual_seed(RANK)
    model = nn.Linear(3, 2)
    first = SLOTS.broadcast(model.weight.detach())
    assert torch.equal(Trainer(model).whole()["weight"], first)


def tensors_of_any_layout_are_broadcast() -> None:
    """Gaps in memory stay as they are. gloo would overwrite them, and NCCL would refuse such tensors."""
    memory = torch.full((4, 6), float(RANK))
    images = torch.full((2, 3, 2, 2), float(RANK)).contiguous(memory_format=torch.channels_last)
    repeated = torch.full((2, 1), float(RANK)).expand(2, 5)
    empty = torch.zeros(0, 2).t()
    broadcast_tensors([memory[:2, ::2], memory[3:].t(), images, repeated, empty, torch.ones(())])
    assert not memory[:2, ::2].any() and not memory[3].any() and not images.any() and not repeated.any()
    assert (memory[:2, 1::2] == RANK).all() and (memory[2] == RANK).all(), "memory outside of the tensors"


def buffers_are_the_chiefs_if_requested() -> None:
    """Buffers are shared in every pass of training. Slots may make different numbers of other passes."""
    for shared in (True, False):
        context: Any = SimpleNamespace(device=torch.device("cpu"))
        inner = nn.BatchNorm1d(3)
        model = DDPBackend(context, TorchDistributedOptions(broadcast_buffers=shared)).wrap_model(inner)
        inner.running_mean.fill_(RANK)  # type: ignore[union-attr]
        model(torch.ones(2, 3)).sum().backward()
        assert inner.running_mean[0] == pytest.approx(0.1 if shared else 0.9 * RANK + 0.1)  # type: ignore[index]
        inner.running_mean.fill_(RANK)  # type: ignore[union-attr]
        with torch.no_grad():
            for _ in range(RANK):
                model.eval()(torch.ones(2, 3))
        assert inner.running_mean[0] == RANK  # type: ignore[index]


def tied_and_compiled_modules_stay_tied_and_compiled() -> None:
    trainer = Trainer(Tied(), units=["Linear", "Embedding"])
    trainer.model(torch.tensor([RANK, 2])).square().sum().backward()
    trainer.context.step_optimizer(trainer.optimizer)
    assert trainer.model.write.weight is trainer.model.read.weight
    assert isinstance(trainer.model.block._orig_mod, FSDPModule) and not isinstance(trainer.model.read, FSDPModule)
    with trainer.backend.evaluation(), torch.no_grad():
        for words in ([2], [0, 1], [3])[RANK:]:
            trainer.model(torch.tensor(words))
    with tempfile.TemporaryDirectory() as own:
        directory = Path(SLOTS.broadcast(own))
        trainer.backend.save(directory)
        dist.barrier()
        assert {"read.weight", "write.weight", "block.weight", "block.bias"} == set(read(directory))
        dist.barrier()


def a_pass_without_gradients_leaves_no_old_weights() -> None:
    trainer, inputs = Trainer(network()), data()
    trainer.model(inputs).square().mean().backward()
    with torch.no_grad():
        trainer.model(inputs)
    trainer.context.step_optimizer(trainer.optimizer)
    with torch.no_grad():
        found = trainer.model(inputs)
    expected = network()
    expected.load_state_dict(trainer.whole())
    assert torch.equal(found, expected(inputs))


def precision_is_that_of_the_options() -> None:
    trainer = Trainer(network(), param_dtype="bfloat16", reduce_dtype="float32")
    outputs = trainer.model(data())
    outputs.square().mean().backward()
    assert outputs.dtype == torch.bfloat16
    assert {weight.dtype for weight in trainer.model.parameters()} == {torch.float32}


def parameters_that_cannot_be_trained_are_refused() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    trainer = Trainer(model)
    trainer.context.wrap_optimizer(optimizer)
    with pytest.raises(InvalidTrial, match=r"SGD trains parameters .* construct the optimizer from the parameters"):
        trainer.backend.ready()
    with pytest.raises(InvalidTrial, match="distributed.units has Block, .* have the classes Linear, Sequential, Tanh"):
        Trainer(network(), units=["Block"])


def a_whole_checkpoint_is_restored_during_aggregation() -> None:
    """Each slot has its own gradients in the checkpoint, and FSDP gets their mean."""
    one, inputs = network(), data()
    optimizer = torch.optim.Adam(one.parameters(), 0.3)
    for _ in range(2):
        one(torch.ones(1, 3)).square().mean().backward()
        optimizer.step()
    optimizer.zero_grad()
    saved = {"models_state_dict": [one.state_dict()], "optimizers_state_dict": [optimizer.state_dict()]}
    saved = deepcopy({**saved, "lr_schedulers_state_dict": []})
    one(inputs).square().mean().backward()
    saved["gradients"] = [{name: weight.grad.clone() for name, weight in one.named_parameters()}]  # type: ignore[union-attr]
    for weight in one.parameters():
        dist.all_reduce(weight.grad)
        weight.grad /= 2  # type: ignore[operator]
    optimizer.step()

    trainer = Trainer(network(), units=["Linear"])
    trainer.backend.restore(Path("/nowhere"), saved, continues=True)
    trainer.optimizer.step()
    torch.testing.assert_close(trainer.whole(), dict(one.state_dict()))

    other = Trainer(network(), lr=0.01)
    other.backend.restore(Path("/nowhere"), saved, continues=False)
    assert other.optimizer.param_groups[0]["lr"] == 0.01
    assert all(weight.grad is None for weight in other.model.parameters())
    assert not other.optimizer.state


def a_saved_state_is_restored() -> None:
    """Two slots restore the state for the same trial or for another one, and one process reads all of it."""
    trainer = Trainer(network(), units=["Linear"])
    for step in (True, False):
        trainer.model(data()).square().mean().backward()
        if step:
            trainer.context.step_optimizer(trainer.optimizer)
    with tempfile.TemporaryDirectory() as own:
        directory = Path(SLOTS.broadcast(own))
        trainer.backend.save(directory)
        dist.barrier()
        torch.testing.assert_close(read(directory), trainer.whole(), rtol=0, atol=0)
        twin, other = Trainer(network()), Trainer(network(), lr=0.01)
        twin.backend.restore(directory, {}, continues=True)
        other.backend.restore(directory, {}, continues=False)
        dist.barrier()
    assert other.optimizer.param_groups[0]["lr"] == 0.01
    assert all(weight.grad is None for weight in other.model.parameters())
    for one in (trainer, twin):
        one.optimizer.step()
    torch.testing.assert_close(twin.whole(), trainer.whole(), rtol=0, atol=0)


def read(directory: Path) -> Any:
    return read_sharded_state(directory)["models_state_dict"][0]


def held(model: nn.Module) -> int:
    """Return the number of weights that this slot has in memory."""
    return sum((one.to_local() if isinstance(one, DTensor) else one).numel() for one in model.parameters())


def a_validation_has_one_layer_whole_at_a_time() -> None:
    """A model that fits into memory only in parts can be validated."""
    trainer, whole = Trainer(Scaled(), units=["Linear"]), Scaled()
    parts, most = held(trainer.model), []
    for layer in trainer.model.layers:  # type: ignore[union-attr]
        layer.register_forward_hook(lambda *_: most.append(held(trainer.model)))
    with trainer.backend.evaluation(), torch.no_grad():
        for _ in range(2 + RANK):
            assert torch.equal(trainer.model(BATCH), whole(BATCH))
    assert len(most) == 3 * (2 + RANK)
    assert max(most) <= parts + whole.scale.numel() + held(whole.layers[0])
    assert held(trainer.model) == parts


class Casts(TorchDispatchMode):
    """Counter of type casts."""

    count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += function is torch.ops.aten._to_copy.default
        return function(*args, **(kwargs or {}))


def a_validation_keeps_no_layer_in_another_precision() -> None:
    """Autocast itself would keep the casts of all weights until its block ends."""
    trainer, casts = Trainer(Scaled(), units=["Linear"]), []
    with trainer.backend.evaluation(), torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for _ in range(2 + RANK):
            with Casts() as counted:
                trainer.model(BATCH)
            casts.append(counted.count)
    assert casts[0] > 3 and set(casts) == {casts[0]}


def slots_call_models_independently_in_a_validation() -> None:
    """Slots may call other models or parts of them, in another order, more often, or not at all."""
    trainer, whole = Trainer(Scaled(), units=["Linear"]), Scaled()
    trainer.context.wrap_model(Scaled())
    of_slots: list[list[list[tuple[int, ...]]]] = [
        [[(0,), (1, 1, 0), (0,), (0, 2)], [(1,), (0,), (0, 0, 0), (1, 2, 2, 0)]],
        [[], [(0,), (1,)]],
        [[(1, 0)], []],
        [[], []],
    ]
    for calls in of_slots:
        with trainer.backend.evaluation(), torch.no_grad():
            for number, *order in calls[RANK]:
                assert torch.equal(trainer.context.models[number](BATCH, *order), whole(BATCH, *order))


def slots_may_differentiate_in_a_validation() -> None:
    """Each slot may compute gradients a different number of times."""
    trainer, whole = Trainer(Scaled(), units=["Linear"]), Scaled()
    parts = held(trainer.model)
    with trainer.backend.evaluation(), torch.no_grad():
        for _ in range(3 * RANK):
            trainer.model(BATCH)
            assert torch.equal(slope(trainer.model, 2, 0), slope(whole, 2, 0))
        trainer.model(BATCH)
    first, second, *_ = trainer.model.layers  # type: ignore[misc]

    def differentiate(*_: Any) -> None:
        """Compute gradients on one slot, during a pass of the whole model."""
        if RANK == 0:
            slope(second)

    with trainer.backend.evaluation(), torch.no_grad():
        handle = first.register_forward_pre_hook(differentiate)
        for _ in range(1 + RANK):
            assert torch.equal(trainer.model(BATCH), whole(BATCH))
        handle.remove()
    assert held(trainer.model) == parts
    assert all(weight.grad is None for weight in trainer.model.parameters())


def compiled_models_are_validated() -> None:
    """This includes modules that were compiled in a pass of training."""
    whole = Scaled().eval()
    trainer = Trainer(torch.compile(Scaled(), backend="eager"), units=["Linear"])
    for _ in range(2):
        with torch.no_grad():
            trainer.model.eval()(BATCH)
        with trainer.backend.evaluation(), torch.no_grad():
            for _ in range(2 + RANK):
                assert torch.equal(trainer.model(BATCH), whole(BATCH))


def an_evaluation_may_be_in_inference_mode() -> None:
    """Training continues with weights that were first gathered in inference mode."""
    trainer, whole = Trainer(Scaled(), units=["Linear"]), Scaled()
    with trainer.backend.evaluation(), torch.inference_mode():
        for _ in range(2 + RANK):
            assert torch.equal(trainer.model(BATCH), whole(BATCH))
    for _ in range(2):
        trainer.model(BATCH).square().mean().backward()
        trainer.context.step_optimizer(trainer.optimizer)


def slope(model: nn.Module, *order: int) -> torch.Tensor:
    """Return the gradient of a sum over two passes with respect to the inputs."""
    with torch.enable_grad():
        inputs = BATCH.clone().requires_grad_()
        (slope,) = torch.autograd.grad(model(inputs, *order).sum() + model(inputs).sum(), inputs)
    return slope


def training_goes_on_after_a_validation() -> None:
    """Training gives the same weights as without validations, and the next validation uses them."""
    undisturbed, trainer = (Trainer(Scaled(), units=["Linear"]) for _ in range(2))
    whole = Scaled()
    for _ in range(3):
        for one in (undisturbed, trainer):
            one.model(BATCH + RANK).square().mean().backward()
            one.context.step_optimizer(one.optimizer)
        whole.load_state_dict(trainer.whole())
        with trainer.backend.evaluation(), torch.no_grad():
            for _ in range(RANK):
                assert torch.equal(trainer.model(BATCH), whole(BATCH))
    torch.testing.assert_close(trainer.whole(), undisturbed.whole(), rtol=0, atol=0)


def an_error_in_a_validation_ends_it_on_all_slots() -> None:
    """The validation ends on slots that call models and on slots that have finished."""
    trainer = Trainer(Scaled(), units=["Linear"])
    expected = pytest.raises(ArithmeticError if RANK else RankFailed, match="rank 1 failed")
    with expected, trainer.backend.evaluation(), torch.no_grad():
        for number in range(3):
            if RANK and number == 2:
                raise ArithmeticError("rank 1 failed")
            trainer.model(BATCH)
    finished = nullcontext() if RANK else pytest.raises(ArithmeticError)
    with finished, trainer.backend.evaluation():
        if RANK == 0:
            raise ArithmeticError
    with trainer.backend.evaluation(), torch.no_grad():
        trainer.model(BATCH)


def collectives_of_the_trial_are_told_apart() -> None:
    """Slots may use collectives in a validation after equally many calls of models. Otherwise it is an error."""
    trainer = Trainer(Scaled(), units=["Linear"])
    with trainer.backend.evaluation(), torch.no_grad():
        trainer.model(BATCH)
        assert SLOTS.allgather(RANK) == [0, 1]
        trainer.model(BATCH)
    expected = nullcontext() if RANK else pytest.raises(InvalidTrial, match="rank 1 called a collective of its own")
    with expected, trainer.backend.evaluation(), torch.no_grad():
        trainer.model(BATCH)
        if RANK == 0:
            trainer.model(BATCH)
        SLOTS.allgather("mine")


CHECKS: dict[str, Callable[[], None]] = {
    check.__name__: check
    for check in (
        a_script_trains,
        each_slot_has_a_part,
        weights_are_the_chiefs,
        tensors_of_any_layout_are_broadcast,
        buffers_are_the_chiefs_if_requested,
        tied_and_compiled_modules_stay_tied_and_compiled,
        a_pass_without_gradients_leaves_no_old_weights,
        precision_is_that_of_the_options,
        parameters_that_cannot_be_trained_are_refused,
        a_whole_checkpoint_is_restored_during_aggregation,
        a_saved_state_is_restored,
        a_validation_has_one_layer_whole_at_a_time,
        a_validation_keeps_no_layer_in_another_precision,
        slots_call_models_independently_in_a_validation,
        compiled_models_are_validated,
        an_evaluation_may_be_in_inference_mode,
        slots_may_differentiate_in_a_validation,
        training_goes_on_after_a_validation,
        an_error_in_a_validation_ends_it_on_all_slots,
        collectives_of_the_trial_are_told_apart,
    )
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    hparams, exp_conf = {"global_batch_size": 8}, {"searcher": {"metric": "validation_loss"}}
    with det_torch.init(hparams=hparams, exp_conf=exp_conf) as script:
        SLOTS = script.distributed
        for name, check in CHECKS.items():
            check()
            print(f"{name} passed", flush=True)
