"""Check that DeepSpeed trains a GAN on all slots like torch on one slot, in every mode of a table.

Each training is saved in the middle of an aggregation and resumed: exactly, at another stage, and without DeepSpeed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ["DS_ACCELERATOR"] = "cpu"

import refusals
import torch
import torch.distributed as dist
from deepspeed import ops
from det_deepspeed import _ds_config, _zero_checkpoints
from det_deepspeed._zero_engine import ZeroEngine
from det_torch.sharding import read_sharded_state
from torch import nn

from det_core.errors import UntrustedCheckpoint

BATCHES, SAVED_AT = 10, 5
NUMBERS = torch.Generator().manual_seed(3)
DATA = [(torch.rand(8, 3, generator=NUMBERS), torch.rand(8, 1, generator=NUMBERS)) for _ in range(BATCHES)]
OWN = {"optimizer": {"type": "AdamW", "params": {"lr": 0.01, "torch_adam": True}}}


@dataclass
class Way:
    """Mode of training: DeepSpeed's config, the aggregation, and whether results must equal those of one slot."""

    stage: int
    config: Mapping[str, Any] = field(default_factory=dict)
    aggregation: int = 2
    like_one: bool = True
    dtype: torch.dtype = torch.float32

    @property
    def zero(self) -> dict[str, Any]:
        return _ds_config.merge_ds_config({"zero_optimization": {"stage": self.stage}}, self.config)


OFFLOAD = {"zero_optimization": {"offload_optimizer": {"device": "cpu"}}}
WAYS = {
    **{f"stage {stage}": Way(stage) for stage in range(4)},
    "stage 2 offloaded": Way(2, OFFLOAD, aggregation=1),
    "stage 3 offloaded": Way(3, OFFLOAD, aggregation=1),
    "its own optimizer": Way(
        3, {**OWN, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 3}}}, like_one=False
    ),
    "bfloat16": Way(2, {"bf16": {"enabled": True}}, like_one=False, dtype=torch.bfloat16),
    "clipped": Way(1, {"gradient_clipping": 0.1}, like_one=False),
}


class Trained:
    """Both models of the GAN and their optimizers, trained with torch on one slot."""

    def __init__(self, aggregation: int, dtype: torch.dtype = torch.float32) -> None:
        torch.manual_seed(1)
        self.maker = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
        self.judge = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
        self.sgd = torch.optim.SGD(self.maker.parameters(), lr=0.1, momentum=0.9)
        self.adam = torch.optim.Adam(self.judge.parameters(), lr=0.01, eps=1e-2)
        self.aggregation, self.dtype = aggregation, dtype

    def train(self, start: int, stop: int) -> Trained:
        for number in range(start, stop):
            updates = (number + 1) % self.aggregation == 0
            inputs, targets = (part.to(self.dtype) for part in self.share(DATA[number]))
            made = self.call(self.maker, inputs)
            judged = self.call(self.judge, made.detach()).square().mean()
            self.backward(judged + (self.call(self.judge, targets) - 1).square().mean())
            if updates:
                self.step(self.adam)
            self.judge.requires_grad_(False)
            self.backward((made - targets).square().mean() + (self.call(self.judge, made) - 1).square().mean())
            if updates:
                self.step(self.sgd)
            self.judge.requires_grad_(True)
        return self

    def share(self, batch: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return batch

    def call(self, model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = model(inputs)
        return result

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        for group in optimizer.param_groups:
            torch._foreach_div_([weight.grad for weight in group["params"]], self.aggregation)
        optimizer.step()
        optimizer.zero_grad()

    def weights(self) -> list[torch.Tensor]:
        return [weight.detach() for model in (self.maker, self.judge) for weight in model.parameters()]

    def restore(self, path: Path) -> Trained:
        saved = read_sharded_state(path)
        pairs = zip((self.maker, self.judge), (self.sgd, self.adam), strict=True)
        for number, (model, optimizer) in enumerate(pairs):
            model.load_state_dict(saved["models_state_dict"][number])
            optimizer.load_state_dict(saved["optimizers_state_dict"][number])
            for name, parameter in model.named_parameters():
                parameter.grad = saved["gradients"][number].get(name)
        return self


class Engines(Trained):
    """The same GAN, trained with DeepSpeed on all slots."""

    def __init__(self, way: Way) -> None:
        super().__init__(way.aggregation, way.dtype)
        slots = dist.get_world_size()
        place: dict[str, Any] = {"per_slot": 8 // slots, "slots": slots, "compression": False, "device": "cpu"}
        config = _ds_config.complete_ds_config(way.zero, aggregation=way.aggregation, **place)
        self.parts = {
            self.maker: ZeroEngine(self.maker, self.sgd, config),
            self.judge: ZeroEngine(self.judge, self.adam, config),
        }
        self.models = [_zero_checkpoints.WrappedModel(model, part) for model, part in self.parts.items()]

    def share(self, batch: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return tuple(values[dist.get_rank() :: dist.get_world_size()] for values in batch)

    def call(self, model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.parts[model].call(inputs)
        return result

    def backward(self, loss: torch.Tensor) -> None:
        with ExitStack() as stack:
            for part in self.parts.values():
                stack.enter_context(part.backward())
            loss.backward()

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        self.parts[self.maker if optimizer is self.sgd else self.judge].step(self.aggregation)

    def weights(self) -> list[torch.Tensor]:
        return [part.weight(weight) for part in self.parts.values() for weight in part.parameters]

    def save(self, path: Path) -> Engines:
        _zero_checkpoints.save_zero_checkpoint(path, self.models, list(self.parts.values()))
        dist.barrier()
        return self

    def restore(self, path: Path) -> Engines:
        _zero_checkpoints.restore_zero_checkpoint(path, {}, self.models, list(self.parts.values()), continues=True)
        return self


def check(way: Way, path: Path) -> None:
    undisturbed = Engines(way).train(0, SAVED_AT).save(path).train(SAVED_AT, BATCHES).weights()
    resumed = Engines(way).restore(path).train(SAVED_AT, BATCHES).weights()
    torch.testing.assert_close(resumed, undisturbed, atol=0, rtol=0)
    if not way.like_one:
        return
    one = Trained(way.aggregation).train(0, BATCHES).weights()
    other = Engines(Way((way.stage + 1) % 4, aggregation=way.aggregation)).restore(path)
    alone = Trained(way.aggregation).restore(path)
    for several in (undisturbed, *(trained.train(SAVED_AT, BATCHES).weights() for trained in (other, alone))):
        torch.testing.assert_close(several, one, atol=1e-6, rtol=1e-6)


def check_another_trials(path: Path) -> None:
    """Check that a warm start restores the weights only."""
    for way in (WAYS["stage 1"], WAYS["stage 3"]):
        continued, begun = Engines(way).restore(path), Engines(way)
        parts = list(begun.parts.values())
        for part in parts:
            part.optimizer.param_groups[0]["lr"] = 0.5
        before = deepcopy([[state for _, state in part.states()] for part in parts])
        _zero_checkpoints.restore_zero_checkpoint(path, {}, begun.models, parts, continues=False)
        torch.testing.assert_close(begun.weights(), continued.weights(), atol=0, rtol=0)
        for part, states in zip(parts, before, strict=True):
            assert part.optimizer.param_groups[0]["lr"] == 0.5
            torch.testing.assert_close([state for _, state in part.states()], states, atol=0, rtol=0)


class Evil:
    """Object that creates a directory when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (self.path,)


def check_screening(path: Path) -> None:
    """Check that a pickle with code is rejected in the files that det_torch's own tests do not cover."""
    mark = path / f"rank {dist.get_rank()} was here"
    torch.save(Evil(mark), _zero_checkpoints._own_file(path))
    try:
        Engines(WAYS["stage 1"]).restore(path)
    except UntrustedCheckpoint:
        assert not mark.exists()
    else:
        raise AssertionError("it was trusted")


def main(directory: Path) -> None:
    torch.set_num_threads(1)
    ops.__compatible_ops__["deepspeed_shm_comm"] = False
    dist.init_process_group("gloo")
    for number, (name, way) in enumerate(WAYS.items()):
        check(way, directory / str(number))
        print(f"{name} passed", flush=True)
    check_another_trials(directory / "1")
    print("another trial's passed", flush=True)
    check_screening(directory / "1")
    refusals.check()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
