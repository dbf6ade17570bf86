"""Check on two slots how the adapter handles gradients in cases that the suite does not cover."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import horovod.torch as hvd
import pytest
import torch
from det_horovod._torch import HorovodTorch
from torch import nn

from det_core.config import NoOptions, parse_config
from det_core.core import DistributedContext
from det_core.errors import InvalidTrial, PeerLost
from det_core.launch import backends

CONFIG = {
    "entrypoint": "m:T",
    "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
    "optimizations": {"tensor_fusion_threshold": 2},
}
TAKEN = SimpleNamespace(get_experiment_config=parse_config(CONFIG).dump, distributed=backends.connect_workers())
RANK = TAKEN.distributed.rank


class Optimizer(torch.optim.SGD):
    """Optimizer that cannot be rebuilt from its parameter groups alone."""

    def __init__(self, weights: Any, rate: float) -> None:
        super().__init__(weights, lr=rate)


def one(dtype: torch.dtype = torch.float32) -> nn.Parameter:
    return nn.Parameter(torch.ones(2, dtype=dtype))


def trained(*weights: nn.Parameter, fp16: bool = False, models: Any = ()) -> tuple[HorovodTorch, torch.optim.Optimizer]:
    adapter = HorovodTorch(TAKEN, NoOptions())
    for model in models:
        assert adapter.wrap_model(model) is model
    optimizer = Optimizer(list(weights), 0.1)
    assert adapter.wrap_optimizer(optimizer, fp16_compression=fp16) is optimizer
    adapter.ready()
    return adapter, optimizer


def backward(adapter: HorovodTorch, *terms: torch.Tensor) -> None:
    loss = torch.stack([term.sum() for term in terms]).sum()
    adapter.backward(loss, loss.backward)


def step(adapter: HorovodTorch, optimizer: torch.optim.Optimizer) -> None:
    adapter.step(optimizer, lambda: None, clips=False)


def gradient(weight: nn.Parameter) -> float | None:
    return None if weight.grad is None else weight.grad.to_dense()[0].mean().item()


def horovod_gets_the_settings_and_knows_its_ranks() -> None:
    assert os.environ["HOROVOD_FUSION_THRESHOLD"] == str(2 << 20)
    assert os.environ["HOROVOD_CYCLE_TIME"] == "2", "variables of the environment are kept"
    context = DistributedContext.from_horovod(hvd, chief_ip=os.environ[backends.CHIEF_VARIABLE])
    assert (context.rank, context.size, context.local_rank, context.cross_size) == (RANK, 2, RANK, 1)
    assert context.allgather(context.rank) == [0, 1]
    context.close()


def gradients_of_several_passes_add_up() -> None:
    weight = one()
    adapter, optimizer = trained(weight)
    with adapter.batch(updates=True):
        backward(adapter, weight * (1 + RANK))
        assert gradient(weight) == 1.5
        backward(adapter, weight * 10 * RANK)
        step(adapter, optimizer)
    assert gradient(weight) == 6.5


def batches_without_updates_do_not_exchange() -> None:
    weight, only_before = one(), one()
    adapter, optimizer = trained(weight, only_before)
    with adapter.batch(updates=False):
        backward(adapter, weight * RANK, only_before * RANK)
        backward(adapter, weight * RANK)
        assert gradient(weight) == 2 * RANK
    with adapter.batch(updates=True):
        backward(adapter, weight * 10)
        step(adapter, optimizer)
    assert (gradient(weight), gradient(only_before)) == (11, 0.5)
    optimizer.zero_grad(set_to_none=True)
    with adapter.batch(updates=False):
        backward(adapter, weight * RANK)
    with adapter.batch(updates=True):
        step(adapter, optimizer)
    assert gradient(weight) == 0.5, "aggregated gradients are exchanged although no pass follows"


def gradients_of_a_checkpoint_are_exchanged() -> None:
    weight = one()
    adapter, optimizer = trained(weight)
    weight.grad = torch.full((2,), float(RANK))
    adapter.begin()
    with adapter.batch(updates=True):
        step(adapter, optimizer)
    assert gradient(weight) == 0.5


def slots_may_use_different_weights() -> None:
    weights = [one(), one()]
    adapter, optimizer = trained(*weights)
    backward(adapter, weights[RANK])
    step(adapter, optimizer)
    assert [gradient(weight) for weight in weights] == [0.5, 0.5]


def another_optimizers_gradients_may_be_zeroed() -> None:
    weight, other = one(), one()
    adapter = HorovodTorch(TAKEN, NoOptions())
    optimizers = [adapter.wrap_optimizer(Optimizer([one], 0.1), fp16_compression=False) for one in (weight, other)]
    adapter.ready()
    for _ in range(2):
        optimizers[1].zero_grad(set_to_none=False)
        backward(adapter, weight * RANK, other)
        optimizers[1].zero_grad()
        step(adapter, optimizers[0])
        optimizers[0].zero_grad()
    assert (gradient(weight), gradient(other)) == (None, None)


def weights_may_be_frozen_but_not_be_added() -> None:
    weight, frozen = one(), one()
    adapter, optimizer = trained(weight, frozen)
    frozen.requires_grad_(False)
    backward(adapter, weight * RANK)
    step(adapter, optimizer)
    assert (gradient(weight), gradient(frozen)) == (0.5, None)
    late = one()
    optimizer.add_param_group({"params": [late]})
    backward(adapter, weight, late)
    with pytest.raises(InvalidTrial, match="add it before"):
        step(adapter, optimizer)


def sparse_gradients_are_exchanged() -> None:
    table = nn.Embedding(4, 2, sparse=True)
    adapter, optimizer = trained(table.weight)
    backward(adapter, table(torch.tensor([0, RANK])))
    step(adapter, optimizer)
    assert table.weight.grad.to_dense()[:, 0].tolist() == [1.5, 0.5, 0, 0]


def bfloat16_needs_compression() -> None:
    with pytest.raises(InvalidTrial, match=r"model0.weight is torch.bfloat16.*mixed_precision: O1"):
        model = nn.Linear(1, 1, dtype=torch.bfloat16)
        trained(*model.parameters(), models=[model])
    weight = one(torch.bfloat16)
    adapter, optimizer = trained(weight, fp16=True)
    backward(adapter, weight * RANK)
    step(adapter, optimizer)
    assert (gradient(weight), weight.grad.dtype) == (0.5, torch.bfloat16)


def parameters_and_buffers_become_those_of_the_chief() -> None:
    tensors = [
        torch.full((), RANK), torch.full((2, 3), RANK, dtype=torch.bfloat16).t(), torch.tensor([RANK == 0]),
        torch.empty(0), torch.full((3,), complex(RANK, 1)),
    ]  # fmt: skip
    model = nn.Linear(2, 2)
    nn.init.constant_(model.weight, RANK)
    for number, tensor in enumerate(tensors):
        model.register_buffer(str(number), tensor)
    adapter, _ = trained(*model.parameters(), models=[model])
    adapter.begin()
    assert model.weight.sum() == 0
    expected = [torch.zeros(()), torch.zeros(3, 2), torch.ones(1), torch.empty(0), torch.full((3,), 1j)]
    assert all(torch.equal(tensor.to(wanted.dtype), wanted) for tensor, wanted in zip(tensors, expected, strict=True))


def meet(*_: Any) -> None:
    TAKEN.distributed.allgather(None)


def a_slot_that_exits_is_an_error_on_the_others(first: HorovodTorch) -> None:
    weight = one()
    adapter, _ = trained(weight)
    if RANK == 0:
        # A gradient that Horovod receives while it shuts down is waited for without end, so the other slot exits later.
        accumulator = weight.expand_as(weight).grad_fn.next_functions[0][0]
        accumulator.register_hook(meet)
        with pytest.raises(PeerLost, match="shut down"):
            backward(adapter, weight)
    else:
        meet()
    first.close()
    assert not hvd.is_initialized()


if __name__ == "__main__":
    torch.set_num_threads(1)
    first = HorovodTorch(TAKEN, NoOptions())
    horovod_gets_the_settings_and_knows_its_ranks()
    gradients_of_several_passes_add_up()
    batches_without_updates_do_not_exchange()
    gradients_of_a_checkpoint_are_exchanged()
    slots_may_use_different_weights()
    another_optimizers_gradients_may_be_zeroed()
    weights_may_be_frozen_but_not_be_added()
    sparse_gradients_are_exchanged()
    bfloat16_needs_compression()
    parameters_and_buffers_become_those_of_the_chief()
    a_slot_that_exits_is_an_error_on_the_others(first)
    print(f"rank {RANK} passed")
