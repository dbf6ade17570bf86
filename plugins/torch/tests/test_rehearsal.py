"""Rehearsals of trials: what they find, and that training is bitwise the same without them."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from det_testing import campaign_seeds
from det_torch import DataLoader, LRScheduler, PyTorchCallback, PyTorchTrial, PyTorchTrialContext
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import BatchSampler, Dataset, IterableDataset, Sampler

from det_core.errors import InvalidTrial
from det_core.interfaces.tracking import TrackingStore
from tests.rehearsals import draw_periods

from .campaign_trial import Last
from .test_random_trials import Average
from .test_run import history

Train = Callable[..., int]
SEEDS = campaign_seeds(few=1, many=60)


def draw() -> float:
    return random.random() + float(np.random.rand()) + torch.rand(1).item()


class Records(Dataset[Any]):
    def __getitem__(self, index: int) -> Any:
        return torch.arange(3.0) + index + draw(), torch.tensor([float(index)])

    def __len__(self) -> int:
        return 21


class Stream(IterableDataset[Any]):
    """Stream with a state of its own."""

    position = 0

    def __iter__(self) -> Iterator[Any]:
        while self.position < 21:
            self.position += 1
            yield Records()[self.position]
        self.position = 0

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]


class Rotating(Sampler[int]):
    """Sampler whose order depends on how often it was iterated."""

    passes = 0

    def __iter__(self) -> Iterator[int]:
        self.passes += 1
        order = [(index * 2 + self.passes) % 21 for index in range(21)]
        return iter(order)

    def __len__(self) -> int:
        return 21


class Swap(Average):
    """Exponential moving average of the weights at the end of each epoch."""

    def on_training_epoch_end(self, epoch_idx: int) -> None:
        self.update()


class Everything(PyTorchTrial):
    """Trial whose evaluation changes all that a rehearsal restores, as chosen by ``data`` in the config."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context, self.options = context, context.get_data_config()
        self.model = context.wrap_model(
            nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 1))
        )
        self.ema = context.wrap_model(AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(0.9)))
        self.sgd = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), 0.01, momentum=0.9))
        self.group = self.sgd.param_groups[0]
        scheduler = torch.optim.lr_scheduler.ExponentialLR(self.sgd, 0.9)
        self.scheduler = context.wrap_lr_scheduler(scheduler, LRScheduler.StepMode.STEP_EVERY_BATCH)
        self.total = context.wrap_reducer(Last(), "total")

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        return {"swap": Swap(self.model)} if self.options["swap"] else {}

    def loader(self) -> Any:
        workers, kind = self.options["workers"], self.options["data"]
        if kind == "stream":
            return DataLoader(Stream(), 4, num_workers=workers, drop_last=True)
        if kind == "sampler":
            return DataLoader(Records(), 4, sampler=Rotating(), num_workers=workers, drop_last=True)
        if kind == "batch sampler":
            batches: Any = BatchSampler(Rotating(), 4, drop_last=True)
            return DataLoader(Records(), batch_sampler=batches, num_workers=workers)
        generator = torch.Generator().manual_seed(3)
        keys = {"num_workers": workers, "generator": generator, "persistent_workers": workers > 0}
        return DataLoader(Records(), 4, shuffle=True, drop_last=True, **keys)

    build_training_data_loader = build_validation_data_loader = loader

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        loss = ((model(batch[0] / 20) - batch[1] / 20) ** 2).mean()
        self.total.update(loss.item())
        return loss

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        if batch_idx == self.options.get("slower"):
            self.group["lr"] *= 0.5  # through a reference from before training
        loss = self.loss(self.model, batch)
        self.context.backward(loss)
        self.context.step_optimizer(self.sgd)
        self.ema.update_parameters(self.model)
        return {"loss": loss, "records": batch[1].flatten(), "drawn": draw()}

    def evaluate_batch(self, batch: Any) -> Any:
        if self.options["reckless"] and self.context.current_train_batch() == 0:
            self.model.train()
            with torch.enable_grad():
                self.loss(self.model, batch).backward()
            with torch.no_grad():
                self.model[0].weight.data.mul_(2)
                self.ema.module[0].bias.add_(1)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the optimizer has made no step yet
                self.scheduler.step()
            self.model.eval()
            self.context.set_stop_requested(True)
        return {"validation_loss": self.loss(self.ema, batch), "drawn": draw()}


def outcome(train: Train, store: TrackingStore, fingerprint: Any, config: dict[str, Any]) -> Any:
    trial_id = train(Everything, config)
    last = store.checkpoints(trial_id=trial_id)[-1]
    return fingerprint([history(store, trial_id), fingerprint(Path(last.storage["container_path"], last.uuid))])


def config_of(seed: int) -> dict[str, Any]:
    chance = random.Random(seed)
    return {
        **draw_periods(chance),
        "data": {
            "workers": chance.choice([0, 2]),
            "data": chance.choice(["shuffle", "stream", "sampler", "batch sampler"]),
            "swap": chance.random() < 0.5,
            "reckless": chance.random() < 0.7,
            "slower": chance.choice([None, 5]),
        },
        "records_per_epoch": 20,
    }


@pytest.fixture
def compare(
    train: Train, store: TrackingStore, fingerprint: Any, caplog: pytest.LogCaptureFixture
) -> Callable[[dict[str, Any]], None]:
    def compare(config: dict[str, Any]) -> None:
        rehearsed, plain = (outcome(train, store, fingerprint, {**config, "rehearsal": on}) for on in (True, False))
        assert rehearsed == plain, config
        assert "the rehearsal" not in caplog.text

    return compare


def test_a_rehearsal_restores_what_a_reckless_evaluation_changes(
    compare: Callable[[dict[str, Any]], None], example_config: dict[str, Any]
) -> None:
    data = {"workers": 0, "data": "sampler", "swap": True, "reckless": True, "slower": 5}
    compare({**example_config, "data": data})


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_rehearsal_restores_what_is_on_a_gpu(
    compare: Callable[[dict[str, Any]], None], example_config: dict[str, Any]
) -> None:
    data = {"workers": 0, "data": "shuffle", "swap": True, "reckless": True, "slower": 5}
    compare({**example_config, "data": data, "resources": {"slots_per_trial": 1}})


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.parametrize("seed", SEEDS)
def test_a_rehearsed_trial_equals_one_without_rehearsal(
    seed: int, compare: Callable[[dict[str, Any]], None], example_config: dict[str, Any]
) -> None:
    compare({**example_config, **config_of(seed)})


class Seen(PyTorchCallback):
    """Callback that notes which of its hooks run."""

    hooks: list[str]

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("on_"):
            return lambda *_: type(self).hooks.append(name)
        return super().__getattribute__(name)


class Watched(Everything):
    callback: PyTorchCallback

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        return {"callback": self.callback}


def watched(callback: PyTorchCallback) -> Any:
    return type("Trial", (Watched,), {"callback": callback})


def config(example_config: dict[str, Any], **searcher: Any) -> dict[str, Any]:
    data = {"workers": 0, "data": "shuffle", "reckless": False}
    return {**example_config, "searcher": {**example_config["searcher"], **searcher}, "data": data}


def test_callbacks_do_not_notice(train: Train, example_config: dict[str, Any]) -> None:
    Seen.hooks = []
    with pytest.raises(InvalidTrial, match="'val_loss', but the validation metrics are"):
        train(watched(Seen()), config(example_config, metric="val_loss"))
    assert Seen.hooks == ["on_trial_startup", "on_training_start", "on_trial_shutdown"]


class Adds(PyTorchCallback):
    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        metrics["score"] = -metrics["validation_loss"]


class Reads(PyTorchCallback):
    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        assert metrics["validation_loss"] is not None or metrics.get("other")


def test_a_callback_may_add_the_metric(train: Train, store: TrackingStore, example_config: dict[str, Any]) -> None:
    trial_id = train(watched(Adds()), config(example_config, metric="score"))
    assert store.trial(trial_id).steps_completed == 10
    with pytest.raises(InvalidTrial, match="'score', but the validation metrics are"):
        train(watched(Reads()), config(example_config, metric="score"))


class Buggy(Everything):
    def evaluate_batch(self, batch: Any) -> Any:
        if self.context.current_train_batch() == 0:
            raise ValueError("only one class in this batch")
        return super().evaluate_batch(batch)


def test_an_exception_of_the_evaluation_is_one_warning(
    train: Train, store: TrackingStore, example_config: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    trial_id = train(Buggy, {**config(example_config), "data": {**config(example_config)["data"], "swap": False}})
    assert store.trial(trial_id).steps_completed == 10
    [warning] = [message for message in caplog.messages if "class in this batch" in message]
    assert "could not evaluate a batch" in warning
