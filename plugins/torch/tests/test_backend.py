"""Calls that a trial makes to its backend, which a test backend records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import det_torch
import pytest
import torch
from det_torch import DataLoader, PyTorchTrial, PyTorchTrialContext
from det_torch._adapter import PyTorchAdapter
from det_torch.backend import TorchBackend, make_torch_backend
from torch import nn

from det_core.errors import LaunchError


class Wrapper(nn.Module):
    """Wrapper like that of a backend, whose state has other names than the model's."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, inputs: Any) -> Any:
        return self.module(inputs)


class Recording(TorchBackend):
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def wrap_model(self, model: nn.Module) -> nn.Module:
        return Wrapper(model)

    def wrap_optimizer(self, optimizer: torch.optim.Optimizer, *, fp16_compression: bool) -> torch.optim.Optimizer:
        self.calls.append(("wrap_optimizer", fp16_compression))
        return optimizer

    def ready(self) -> None:
        self.calls.append("ready")

    def begin(self) -> None:
        self.calls.append("begin")

    @contextmanager
    def batch(self, *, updates: bool) -> Iterator[None]:
        self.calls.append(("batch", updates))
        yield
        self.calls.append("end")

    def backward(self, loss: torch.Tensor, run: Callable[[], Any]) -> None:
        self.calls.append("backward")
        run()

    def step(self, optimizer: torch.optim.Optimizer, run: Callable[[], Any], *, clips: bool) -> None:
        self.calls.append(("step", clips))
        run()

    def share_buffers(self) -> None:
        self.calls.append("share")

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        self.calls.append("evaluation")
        yield
        self.calls.append("end")


class Framework(PyTorchTrial):
    def build_model(self) -> nn.Module:
        return nn.Linear(1, 1)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.1)

    def train_batch(self, batch: Any, model: nn.Module, epoch_idx: int, batch_idx: int) -> Any:
        assert isinstance(model, Wrapper)
        return {"loss": model(batch).mean()}

    def evaluate_batch(self, batch: Any, model: nn.Module) -> Any:
        return {"validation_loss": model(batch).mean()}

    def build_training_data_loader(self) -> Any:
        return DataLoader(torch.rand(8, 1), 4)  # type: ignore[arg-type]

    build_validation_data_loader = build_training_data_loader


def never() -> bool:
    return False


@pytest.mark.parametrize("mixed", ["O0", "O1"])
def test_the_adapter_calls_its_backend_in_order(
    make_context: Callable[..., PyTorchTrialContext], mixed: str, tmp_path: Path
) -> None:
    optimizations = {"aggregation_frequency": 2, "gradient_compression": True, "mixed_precision": mixed}
    context = make_context(optimizations=optimizations)
    context.backend = backend = Recording()
    adapter = PyTorchAdapter(Framework(context), context)
    adapter.started()
    adapter.train(2, never)
    assert backend.calls == [
        ("wrap_optimizer", True),
        "ready",
        "begin",
        ("batch", False),
        "backward",
        "end",
        ("batch", True),
        "backward",
        ("step", False),
        "end",
    ]
    adapter.validate(never)
    adapter.snapshot()(tmp_path)
    adapter.close()
    assert backend.calls[-4:] == ["share", "evaluation", "end", "share"]
    state = torch.load(tmp_path / "state_dict.pth", weights_only=True)
    assert list(state["models_state_dict"][0]) == ["weight", "bias"], "names of the model, not of its wrapper"
    assert "slots" not in state


class Whole(Framework):
    evaluate_batch = PyTorchTrial.evaluate_batch

    def evaluate_full_dataset(self, data_loader: Any, model: nn.Module) -> Any:
        return {"validation_loss": model(next(iter(data_loader))).mean()}


@pytest.mark.parametrize("trial", [Framework, Whole])
def test_an_evaluation_ends_before_slots_meet(
    make_context: Callable[..., PyTorchTrialContext], trial: type[PyTorchTrial]
) -> None:
    """Slots that have finished take part in the forward passes of the others until all have finished."""
    context = make_context()
    context.backend = backend = Recording()
    context.wrap_reducer(lambda values: backend.calls.append("reduced"), "reduced")
    adapter = PyTorchAdapter(trial(context), context)
    adapter.started()
    adapter.validate(never)
    adapter.close()
    assert backend.calls[-4:] == ["share", "evaluation", "end", "reduced"]


def test_one_slot_has_the_base_class(make_context: Callable[..., PyTorchTrialContext]) -> None:
    context = make_context()
    assert type(context.backend) is type(make_torch_backend(context)) is TorchBackend
    model = nn.Linear(1, 1)
    assert context.wrap_model(model) is model is context.models[0]


def test_several_slots_need_to_be_started_by_a_backend(make_context: Callable[..., PyTorchTrialContext]) -> None:
    context = make_context()
    context.distributed.size = 2
    with pytest.raises(LaunchError, match="python -m det_core.launch"):
        make_torch_backend(context)


def test_a_script_with_other_workers_must_name_a_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=r"from_torch_distributed\(\) and set DET_BACKEND"):
        det_torch.init().__enter__()
