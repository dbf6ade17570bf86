"""Order, arguments and thread of all hooks of a callback in a whole trial."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from det_torch import Batch, DataLoader, PyTorchCallback, PyTorchTrial, PyTorchTrialContext, Trainer, init
from det_torch._adapter import PyTorchAdapter
from torch.utils.data import TensorDataset


class Recorder(PyTorchCallback):
    """Callback that records every call. Each hook is one of its attributes."""

    def __init__(self, hooks: set[str]) -> None:
        self.calls: list[tuple[Any, ...]] = []
        for hook in hooks:
            setattr(self, hook, self._noting(hook))

    def _noting(self, hook: str) -> Callable[..., None]:
        def note(self: Recorder, *args: Any) -> None:
            assert threading.current_thread() is threading.main_thread()
            kept = (
                sorted(arg) if isinstance(arg, dict) else len(arg) if isinstance(arg, list) else arg for arg in args
            )
            self.calls.append((hook, *kept))

        return note.__get__(self)


HOOKS = {name for name in vars(PyTorchCallback) if name.startswith("on_")}
DIRECTORY = {"on_checkpoint_write_end", "on_checkpoint_end"}


class Trial(PyTorchTrial):
    hooks = HOOKS

    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        self.model = context.wrap_model(torch.nn.Linear(1, 1))
        self.sgd = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), 0.1))
        self.recorder = Recorder(self.hooks)

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        return {"recorder": self.recorder}

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        loss = self.model(batch[0]).sum()
        self.context.backward(loss)
        self.context.step_optimizer(self.sgd)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any) -> Any:
        return {"validation_loss": self.model(batch[0]).mean()}

    def build_training_data_loader(self) -> Any:
        self.recorder.calls.append(("loaders",))
        return DataLoader(TensorDataset(torch.ones(6, 1)), batch_size=2)

    def build_validation_data_loader(self) -> Any:
        return DataLoader(TensorDataset(torch.ones(6, 1)), batch_size=2)


class WithoutDirectory(Trial):
    hooks = HOOKS - DIRECTORY


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))


def train(trial_class: type[Trial], length: int, latest: str | None = None) -> list[tuple[Any, ...]]:
    with init() as context:
        trial = trial_class(context)
        Trainer(trial, context).fit(
            max_length=Batch(length),
            validation_period=Batch(3),
            reporting_period=Batch(3),
            checkpoint_policy="all",
            latest_checkpoint=latest,
        )
    return trial.recorder.calls


STATE = ["callbacks", "data", "data_lengths", "data_position", "gradients", "lr_schedulers_state_dict"]
STATE += ["models_state_dict", "optimizers_state_dict", "reducers", "rng_state", "training_length"]
VALIDATION = [
    ("on_validation_start",),
    ("on_validation_epoch_start",),
    ("on_validation_epoch_end", 3),
    ("on_validation_end", ["validation_loss"]),
]
EPOCH = ("on_training_workload_end", ["loss"], 3)


def test_all_hooks_run_in_order() -> None:
    """The trial starts without a checkpoint, so ``on_checkpoint_load_start`` is not called."""
    calls = train(Trial, 4)
    uploads = [call[1] for call in calls if call[0] == "on_checkpoint_upload_end"]
    written = [call[1] for call in calls if call[0] == "on_checkpoint_write_end"]
    assert len(uploads) == len(set(uploads)) == 2
    assert [Path(path).name for path in written] == uploads, "the directory is the checkpoint's"

    def checkpoint(number: int) -> list[tuple[Any, ...]]:
        ends = [("on_checkpoint_end", written[number]), ("on_checkpoint_write_end", written[number])]
        return [("on_checkpoint_save_start", STATE), *ends, ("on_checkpoint_upload_end", uploads[number])]

    assert calls == [
        ("on_trial_startup", 0, None),
        ("loaders",),
        ("on_training_start",),
        ("on_training_epoch_start", 0),
        ("on_training_epoch_end", 0),
        EPOCH,
        *VALIDATION,
        *checkpoint(0),
        ("on_training_epoch_start", 1),
        ("on_training_workload_end", ["loss"], 1),
        *VALIDATION,
        *checkpoint(1),
        ("on_trial_shutdown",),
    ]


def test_a_resumed_trial_gets_its_first_batch_and_its_checkpoint() -> None:
    saved = next(call[1] for call in train(Trial, 3) if call[0] == "on_checkpoint_upload_end")
    calls = train(Trial, 5, latest=saved)
    assert calls[:5] == [
        ("on_trial_startup", 3, saved),
        ("loaders",),
        ("on_checkpoint_load_start", sorted([*STATE, "scaler_state_dict"])),
        ("on_training_start",),
        ("on_training_epoch_start", 1),
    ]


def test_a_checkpoint_is_written_in_the_background_unless_a_hook_gets_its_directory() -> None:
    calls = [call[0] for call in train(WithoutDirectory, 6)]
    assert calls.count("on_checkpoint_upload_end") == 2
    first = calls.index("on_checkpoint_save_start")
    assert calls[first + 1] == "on_training_epoch_start", "training continued"
    assert calls[-2:] == ["on_checkpoint_upload_end", "on_trial_shutdown"], "the last one was waited for"


class Counted(PyTorchCallback):
    def __init__(self) -> None:
        self.starts = torch.zeros(())

    def on_validation_start(self) -> None:
        self.starts += 1

    def state_dict(self) -> dict[str, Any]:
        return {"starts": self.starts}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.starts = state_dict["starts"]


def test_an_interrupted_validation_runs_its_hooks_once(make_context: Any) -> None:
    class Counting(Trial):
        def build_callbacks(self) -> dict[str, PyTorchCallback]:
            self.counted = Counted()
            return {"counted": self.counted}

    trial = Counting(context := make_context())
    adapter = PyTorchAdapter(trial, context)
    assert adapter.validate(lambda: True) is None
    assert trial.counted.starts == 0
    assert adapter.validate(lambda: False)
    assert trial.counted.starts == 1


@pytest.mark.parametrize("hook", ["on_validation_start", "on_validation_epoch_start"])
def test_weights_that_a_callback_swaps_in_for_a_validation_are_in_no_checkpoint(hook: str, make_context: Any) -> None:
    """A stop during the validation waits for the hook that restores the weights."""

    class Averaged(Trial):
        def build_callbacks(self) -> dict[str, PyTorchCallback]:
            class Exchange(PyTorchCallback):
                def on_validation_end(_, metrics: Any) -> None:
                    self.model.weight.data.sub_(100)

            exchange = Exchange()
            setattr(exchange, hook, lambda: self.model.weight.data.add_(100))
            return {"exchange": exchange}

        def evaluate_batch(self, batch: Any) -> Any:
            self.asked = True
            return super().evaluate_batch(batch)

    trial = Averaged(context := make_context())
    trial.asked = False
    before = trial.model.weight.item()
    assert PyTorchAdapter(trial, context).validate(lambda: trial.asked)
    assert trial.model.weight.item() == pytest.approx(before, abs=1e-4)


class Elements(Trial):
    """Trial with metrics that are tensors of one element, arrays, or values without a mean."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        self.heard: dict[str, Any] = {}

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        heard = self.heard

        class Hears(PyTorchCallback):
            def on_training_workload_end(self, avg_metrics: Any, batch_metrics: Any) -> None:
                heard["averages"], heard["batches"] = avg_metrics, batch_metrics

            def on_validation_epoch_end(self, outputs: Any) -> None:
                heard["outputs"] = outputs

            def on_validation_end(self, metrics: Any) -> None:
                heard["metrics"] = metrics

        return {"hears": Hears()}

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        loss = super().train_batch(batch, epoch_idx, batch_idx)["loss"].detach()
        array = np.array([[0.0, 1.0], [2.0, batch_idx]], np.float32)
        ragged = torch.full((3 - batch_idx,), float(batch_idx))
        return {"loss": loss * 0 + 1, "one": torch.ones(1), "array": array, "ragged": ragged, "note": "text"}

    def evaluate_batch(self, batch: Any) -> Any:
        return {"validation_loss": torch.ones(1), "classes": np.array([1, 3])}


def test_metrics_that_are_not_scalars_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    with init() as context:
        trial = Elements(context)
        Trainer(trial, context).fit(max_length=Batch(3), reporting_period=Batch(3), validation_period=Batch(3))
        assert context._core is not None
        context._core.train.flush()
        reports = {report.group: report.metrics for report in context._core._store.metrics(context.get_trial_id())}
    # The mean is over the elements of all arrays, whose lengths differ: three times 0, twice 1, once 2.
    assert reports["training"] == {"loss": 1.0, "one": 1.0, "array": 1.0, "ragged": pytest.approx(4 / 6)}
    assert reports["validation"] == {"validation_loss": 1.0, "classes": 2.0}
    (warning,) = [record.getMessage() for record in caplog.records if "'note'" in record.getMessage()]
    assert "the training metric 'note' is 'text'" in warning

    heard = trial.heard
    assert heard["batches"][1]["array"].shape == (2, 2)
    assert heard["batches"][1]["one"].mean().item() == heard["averages"]["one"].item() == 1.0
    assert heard["batches"][0]["note"] == "text"
    assert heard["outputs"][0]["validation_loss"].shape == (1,)
    assert heard["outputs"][0]["classes"].max() == 3
    assert heard["metrics"]["classes"].item() == 2.0
