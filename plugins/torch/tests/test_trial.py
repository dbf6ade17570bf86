"""Both styles train the same as a hand-written loop, and errors name what an incomplete trial lacks."""

from __future__ import annotations

import logging
import sys
from typing import Any

import numpy as np
import pytest
import torch
from det_torch import (
    ClipGradsL2Norm,
    ClipGradsL2Value,
    DataLoader,
    LRScheduler,
    PyTorchTrial,
    PyTorchTrialContext,
    Reducer,
)
from det_torch._adapter import PyTorchAdapter
from det_torch._metrics import materialize_metrics
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.data import TensorDataset

from det_core.errors import InvalidTrial

INPUTS = torch.arange(60.0).reshape(20, 3) / 60
DATASET = TensorDataset(INPUTS, INPUTS.sum(1, keepdim=True))


def never() -> bool:
    return False


def mse(model: nn.Module, batch: Any) -> torch.Tensor:
    return ((model(batch[0]) - batch[1]) ** 2).mean()


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Linear(3, 1)


class Data(PyTorchTrial):
    def build_training_data_loader(self) -> Any:
        return DataLoader(DATASET, batch_size=4)

    def build_validation_data_loader(self) -> Any:
        return DataLoader(DATASET, batch_size=8)


class FrameworkDrives(Data):
    def build_model(self) -> nn.Module:
        return network()

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.1)

    def train_batch(self, batch: Any, model: nn.Module, epoch_idx: int, batch_idx: int) -> Any:
        return mse(model, batch)

    def evaluate_batch(self, batch: Any, model: nn.Module) -> Any:
        return {"validation_loss": mse(model, batch)}


class UserDrives(Data):
    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        self.model = context.wrap_model(network())
        self.sgd = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        loss = mse(self.model, batch)
        self.context.backward(loss)
        self.context.step_optimizer(self.sgd)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any) -> Any:
        return {"validation_loss": mse(self.model, batch)}


def adapter_of(trial_class: type[PyTorchTrial], context: PyTorchTrialContext) -> PyTorchAdapter:
    return PyTorchAdapter(trial_class(context), context)


class TestTraining:
    @pytest.mark.parametrize("trial_class", [FrameworkDrives, UserDrives])
    @pytest.mark.parametrize(("aggregation", "average"), [(1, True), (3, True), (3, False)])
    def test_training_equals_a_loop_by_hand(
        self, trial_class: type[PyTorchTrial], aggregation: int, average: bool, make_context: Any
    ) -> None:
        context = make_context(
            optimizations={"aggregation_frequency": aggregation, "average_aggregated_gradients": average}
        )
        rows = adapter_of(trial_class, context).train(8, never)

        model, losses = network(), []
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        batches = [(INPUTS[i : i + 4], INPUTS[i : i + 4].sum(1, keepdim=True)) for i in range(0, 20, 4)]
        for number in range(8):
            loss = mse(model, batches[number % 5])
            losses.append({"loss": loss.item()})
            loss.backward()
            if number % aggregation == aggregation - 1:
                for parameter in model.parameters():
                    parameter.grad.div_(aggregation if average else 1)
                sgd.step()
                sgd.zero_grad()
        assert rows == losses
        assert all(map(torch.equal, context.models[0].parameters(), model.parameters()))

    @pytest.mark.parametrize(
        ("hparam", "clip"),
        [("clip_grad_l2_norm", nn.utils.clip_grad_norm_), ("clip_grad_val", nn.utils.clip_grad_value_)],
    )
    def test_a_hyperparameter_clips_gradients(self, hparam: str, clip: Any, make_context: Any) -> None:
        context = make_context(hparams={hparam: 0.01})
        adapter_of(FrameworkDrives, context).train(1, never)
        model = network()
        mse(model, (INPUTS[:4], INPUTS[:4].sum(1, keepdim=True))).backward()
        clip(model.parameters(), 0.01)
        torch.optim.SGD(model.parameters(), lr=0.1).step()
        assert all(map(torch.equal, context.models[0].parameters(), model.parameters()))

    def test_a_trial_knows_its_batch_and_epoch(self, make_context: Any) -> None:
        seen = []

        class Positions(UserDrives):
            def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
                context = self.context
                assert (epoch_idx, batch_idx) == (context.current_train_epoch(), context.current_train_batch())
                seen.append((epoch_idx, batch_idx, context.is_epoch_start(), context.is_epoch_end()))
                return super().train_batch(batch, epoch_idx, batch_idx)

        adapter = adapter_of(Positions, make_context())
        assert adapter.batches_per_epoch == 5
        assert adapter.records_per_batch == 4
        adapter.train(6, never)
        assert seen == [
            (0, 0, True, False),
            *((0, i, False, False) for i in (1, 2, 3)),
            (0, 4, False, True),
            (1, 5, True, False),
        ]

    def test_training_stops_after_the_batch_at_which_a_stop_is_requested(self, make_context: Any) -> None:
        answers = iter([False, False, True])
        assert len(adapter_of(UserDrives, make_context()).train(10, lambda: next(answers))) == 3

    def test_a_validation_stops_after_the_batch_at_which_a_stop_is_requested(self, make_context: Any) -> None:
        seen = []

        class Counts(UserDrives):
            def evaluate_batch(self, batch: Any) -> Any:
                seen.append(batch)
                return {"n": 1}

        adapter = adapter_of(Counts, make_context())
        assert adapter.validate(lambda: len(seen) == 2) is None
        assert len(seen) == 2
        assert adapter.validate(never) is not None

    def test_models_are_in_training_or_evaluation_mode(self, make_context: Any) -> None:
        modes = []

        class Modes(FrameworkDrives):
            def train_batch(self, batch: Any, model: nn.Module, epoch_idx: int, batch_idx: int) -> Any:
                modes.append((model.training, torch.is_grad_enabled()))
                return super().train_batch(batch, model, epoch_idx, batch_idx)

            def evaluate_batch(self, batch: Any, model: nn.Module) -> Any:
                modes.append((model.training, torch.is_grad_enabled()))
                return super().evaluate_batch(batch, model)

        adapter = adapter_of(Modes, make_context())
        adapter.train(1, never), adapter.validate(never), adapter.train(1, never)
        assert modes == [(True, True), *[(False, False)] * 3, (True, True)]

    def test_modules_that_the_trial_put_into_evaluation_mode_are_named(
        self, make_context: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A model that is in evaluation mode as a whole was probably loaded so by a library."""

        class Frozen(UserDrives):
            def __init__(self, context: PyTorchTrialContext) -> None:
                super().__init__(context)
                block = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout())
                self.other = context.wrap_model(nn.Sequential(nn.Linear(3, 3), block, nn.ReLU()))
                block.eval()
                self.model.eval()

        adapter = adapter_of(Frozen, make_context())
        assert all(module.training for model in adapter._context.models for module in model.modules())
        assert caplog.messages == [
            "the trial put models[1].1 into evaluation mode, but training begins with all modules in training mode; "
            "call eval() in on_training_start() of a callback to keep a module in evaluation mode"
        ]

    def test_a_report_reduces_the_values_since_the_previous_one(self, make_context: Any) -> None:
        class Counts(UserDrives):
            def __init__(self, context: PyTorchTrialContext) -> None:
                super().__init__(context)
                self.count = context.wrap_reducer(len, "batches", for_validation=False)

            def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
                self.count.update(None)
                return super().train_batch(batch, epoch_idx, batch_idx)

        adapter = adapter_of(Counts, make_context())
        for batches in (3, 2):
            adapter.train(batches, never)
            assert adapter.reduced() == {"batches": batches}

    def test_a_reducer_cannot_replace_a_metric_of_some_batches(self, make_context: Any) -> None:
        class Replaces(UserDrives):
            def __init__(self, context: PyTorchTrialContext) -> None:
                super().__init__(context)
                context.wrap_reducer(len, "count")

            def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
                return {**super().train_batch(batch, epoch_idx, batch_idx), **({"count": 1} if batch_idx == 1 else {})}

        adapter = adapter_of(Replaces, make_context())
        for batches in (2, 1):
            adapter.train(batches, never)
        with pytest.raises(InvalidTrial, match=r"'count' comes from train_batch\(\) and from the reducer count"):
            adapter.reduced()

    def test_a_nan_loss_is_recorded_and_logged_once(self, make_context: Any, caplog: pytest.LogCaptureFixture) -> None:
        class Diverges(FrameworkDrives):
            def train_batch(self, batch: Any, model: nn.Module, epoch_idx: int, batch_idx: int) -> Any:
                loss = super().train_batch(batch, model, epoch_idx, batch_idx)
                return {"loss": loss * float("nan") if batch_idx >= 3 else loss}

        adapter = adapter_of(Diverges, make_context())
        rows = [*adapter.train(2, never), *adapter.train(4, never), *adapter.train(1, never)]
        assert [np.isnan(row["loss"]) for row in rows] == [False] * 3 + [True] * 4
        assert [record.message for record in caplog.records if "NaN" in record.message] == [
            "the loss of batch 3 is NaN; training continues, and later NaN losses are not logged"
        ]

    def test_an_exception_of_the_trial_is_logged_and_raised(
        self, make_context: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Raises(FrameworkDrives):
            def train_batch(self, batch: Any, model: nn.Module, epoch_idx: int, batch_idx: int) -> Any:
                return 1 / (7 - batch_idx) * super().train_batch(batch, model, epoch_idx, batch_idx)

        with caplog.at_level(logging.ERROR), pytest.raises(ZeroDivisionError):
            adapter_of(Raises, make_context()).train(10, never)
        assert caplog.messages == ["training failed at batch 7, in epoch 1 (both count from 0)"]

    def test_state_that_cannot_be_loaded_is_refused_when_it_is_saved(self, make_context: Any, tmp_path: Any) -> None:
        class Odd(UserDrives):
            def __init__(self, context: PyTorchTrialContext) -> None:
                super().__init__(context)
                self.model.register_state_dict_post_hook(
                    lambda module, state, *_: state.update(odd=logging.NullHandler())
                )

        with pytest.raises(InvalidTrial, match="NullHandler"):
            adapter_of(Odd, make_context()).snapshot()(tmp_path)

    def test_weights_in_safetensors_are_saved_once_and_loaded(self, make_context: Any, tmp_path: Any) -> None:
        pytest.importorskip("safetensors")

        class Safe(UserDrives):
            safetensors = True

        adapter = adapter_of(Safe, make_context())
        adapter.train(2, never)
        adapter.snapshot()(tmp_path)
        assert (tmp_path / "model_0.safetensors").is_file()
        assert "models_state_dict" not in torch.load(tmp_path / "state_dict.pth", weights_only=True)
        context = make_context()
        adapter_of(Safe, context).load(tmp_path, batches_trained=2)
        assert all(map(torch.equal, context.models[0].parameters(), adapter._context.models[0].parameters()))

    def test_tensors_that_wrap_others_are_saved_if_their_class_loads_safely(
        self, make_context: Any, tmp_path: Any
    ) -> None:
        class Wraps(UserDrives):
            def __init__(self, context: PyTorchTrialContext) -> None:
                super().__init__(context)
                weight = self.model.weight.detach()
                self.model.register_buffer("pair", TwoTensor(weight.clone(), weight + 1))

        with pytest.raises(
            InvalidTrial, match=r"models\[0\]\.pair is a .*TwoTensor, .*add_safe_globals\(\[TwoTensor\]\)"
        ):
            adapter_of(Wraps, make_context())
        with torch.serialization.safe_globals([TwoTensor]):
            adapter = adapter_of(Wraps, make_context())
            write = adapter.snapshot()
            (kept,) = (model.pair.b.clone() for model in adapter._context.models)
            adapter._context.models[0].pair.b.zero_()
            write(tmp_path)
            adapter.load(tmp_path, batches_trained=1)
        assert torch.equal(adapter._context.models[0].pair.b, kept)

    def test_a_checkpoint_of_other_code_is_refused(self, make_context: Any, tmp_path: Any) -> None:
        class Two(UserDrives):
            def __init__(self, context: PyTorchTrialContext) -> None:
                super().__init__(context)
                context.wrap_model(network())

        adapter_of(Two, make_context()).snapshot()(tmp_path)
        with pytest.raises(InvalidTrial, match="the checkpoint has 2 models, but the trial has 1"):
            adapter_of(UserDrives, make_context()).load(tmp_path, batches_trained=3)


class TestValidation:
    def test_metrics_are_reduced_over_batches(self, make_context: Any) -> None:
        class Metrics(FrameworkDrives):
            def evaluate_batch(self, batch: Any, model: nn.Module) -> Any:
                size = len(batch[0])
                return {
                    "mean": torch.tensor(float(size)),
                    "sum": size,
                    "max": np.array([size, -size]),
                    "min": [size, -size],
                }

            def evaluation_reducer(self) -> Any:
                return {reducer.value.replace("avg", "mean"): reducer for reducer in Reducer}

        metrics = adapter_of(Metrics, make_context()).validate(never)
        assert metrics == {"mean": 20 / 3, "sum": 20, "max": 8, "min": -8}
        assert [type(value) for value in metrics.values()] == [float, int, int, int]

    def test_a_trial_may_evaluate_the_full_dataset(self, make_context: Any) -> None:
        class Full(UserDrives):
            evaluate_batch = PyTorchTrial.evaluate_batch

            def evaluate_full_dataset(self, data_loader: Any) -> Any:
                assert len(data_loader) == 3
                assert len(data_loader.dataset) == 20
                return {"records": sum(len(batch[0]) for batch in data_loader), "none": None, "name": "x"}

        assert adapter_of(Full, make_context()).validate(never) == {"records": 20, "none": None, "name": "x"}

    @pytest.mark.parametrize(
        ("returned", "reducer", "message"),
        [
            (lambda size: None, Reducer.AVG, "returned None; expected a dict"),
            (lambda size: {}, Reducer.AVG, "returned {}; expected a dict"),
            (lambda size: {f"m{size}": 1.0}, Reducer.AVG, r"\['m8'\] for batch 0 but \['m4'\] for batch 2"),
            (lambda size: {"m": [1.0] * size}, Reducer.AVG, "'m' changes its shape"),
            (lambda size: {"m": "good"}, Reducer.AVG, "'m' is 'good'; expected a number"),
            (lambda size: {"m": None}, Reducer.AVG, "'m' is None; expected a number"),
            (lambda size: {"m": object()}, Reducer.AVG, "'m' is <object"),
            (lambda size: {"m": 1}, "avg", "evaluation_reducer.. returned 'avg'"),
            (lambda size: {"m": 1}, {"m": "avg"}, "evaluation_reducer.. returned {'m': 'avg'}"),
            (lambda size: {"m": 1}, {}, r"reducers for \[\], but the metrics are \['m'\]"),
            (lambda size: {"m": 1}, {"m": Reducer.SUM, "x": Reducer.SUM}, r"reducers for \['m', 'x'\], but"),
        ],
    )
    def test_bad_metrics_are_refused(self, returned: Any, reducer: Any, message: str, make_context: Any) -> None:
        class Bad(FrameworkDrives):
            def evaluate_batch(self, batch: Any, model: nn.Module) -> Any:
                return returned(len(batch[0]))

            def evaluation_reducer(self) -> Any:
                return reducer

        with pytest.raises(InvalidTrial, match=message):
            adapter_of(Bad, make_context()).validate(never)


class TestTrainingMetrics:
    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (torch.tensor(1.5), 1.5),
            (torch.tensor(2, dtype=torch.int32), 2),
            (torch.tensor([1.0, 2.0], requires_grad=True), np.array([1.0, 2.0])),
            (torch.tensor([0.5, 1.0], dtype=torch.bfloat16), np.array([0.5, 1.0])),
            (torch.tensor(0.5, dtype=torch.bfloat16), 0.5),
            (np.float32(0.5), 0.5),
            (np.arange(3, dtype=np.int8), np.array([0, 1, 2])),
            ((1, np.int64(2)), [1, 2]),
            ({"a": np.float64(1)}, {"a": 1.0}),
            (None, None),
            ("text", "text"),
            (True, True),
        ],
    )
    def test_metrics_become_plain_values(self, value: Any, expected: Any, make_context: Any) -> None:
        class Metric(UserDrives):
            def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
                return {**super().train_batch(batch, epoch_idx, batch_idx), "metric": value}

        found = adapter_of(Metric, make_context()).train(1, never)[0]["metric"]
        assert type(found) is type(expected)
        assert np.array_equal(found, expected)
        assert getattr(found, "dtype", None) == getattr(expected, "dtype", None)

    @pytest.mark.parametrize("value", [object(), {1: 2}, [object()], b"bytes", np.array([object()])])
    def test_metrics_of_other_types_are_refused_by_name(self, value: Any, make_context: Any) -> None:
        class Metric(UserDrives):
            def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
                return {"loss": 1.0, "odd one": value}

        with pytest.raises(InvalidTrial, match="the metric 'odd one' is"):
            adapter_of(Metric, make_context()).train(1, never)

    def test_metrics_on_an_accelerator_are_fetched_by_name(self) -> None:
        rows: list[dict[str, Any]] = [{"loss": torch.tensor(float(n)), "n": n} for n in range(3)]
        rows[1]["rare"] = torch.tensor(True)
        materialize_metrics(rows)
        assert rows == [{"loss": 0.0, "n": 0}, {"loss": 1.0, "n": 1, "rare": True}, {"loss": 2.0, "n": 2}]
        assert type(rows[0]["loss"]) is float

    def test_metrics_on_an_accelerator_may_have_any_shape(self) -> None:
        """Examples are one value per class, and one value per record with a smaller last batch."""
        tensors = [torch.tensor([1, 2]), torch.tensor([3, 4]), torch.tensor([5]), torch.tensor(0.5), torch.ones(1, 0)]
        rows: list[dict[str, Any]] = [{"metric": tensor} for tensor in tensors]
        materialize_metrics(rows)
        assert [np.asarray(row["metric"]).tolist() for row in rows] == [[1, 2], [3, 4], [5], 0.5, [[]]]
        assert rows[0]["metric"].dtype == np.int64, "other batches do not change the type"

    def test_metrics_are_those_of_their_own_batch(self, make_context: Any) -> None:
        class Counts(UserDrives):
            total, array = torch.zeros(()), np.zeros(1)

            def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
                self.total += 1
                self.array += 1
                return {"loss": self.total, "array": self.array}

        rows = adapter_of(Counts, make_context()).train(3, never)
        assert rows == [{"loss": float(n), "array": [float(n)]} for n in (1, 2, 3)]


@pytest.mark.parametrize("returned", [None, {}, {"accuracy": 0.5}, {"loss": None}, 7, [1.0]])
def test_a_result_without_a_loss_is_refused(returned: Any, make_context: Any) -> None:
    bad = type("Bad", (FrameworkDrives,), {"train_batch": lambda self, batch, model, epoch_idx, batch_idx: returned})
    with pytest.raises(InvalidTrial) as error:
        adapter_of(bad, make_context()).train(1, never)
    assert f"train_batch() returned {returned!r}; expected a loss that requires grad" in str(error.value)


@pytest.mark.parametrize("returned", [None, 7, [1.0]])
def test_a_result_without_metrics_is_refused(returned: Any, make_context: Any) -> None:
    bad = type("Bad", (UserDrives,), {"train_batch": lambda self, batch, epoch_idx, batch_idx: returned})
    with pytest.raises(InvalidTrial) as error:
        adapter_of(bad, make_context()).train(1, never)
    assert f"train_batch() returned {returned!r}; expected the loss, or a dict" in str(error.value)


def test_a_trial_that_runs_backward_may_name_its_loss_freely(make_context: Any) -> None:
    class Trial(UserDrives):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            return {"train_loss": super().train_batch(batch, epoch_idx, batch_idx)["loss"]}

    (row,) = adapter_of(Trial, make_context()).train(1, never)
    assert list(row) == ["train_loss"]


@pytest.mark.parametrize("trial_class", [FrameworkDrives, UserDrives])
def test_evaluate_batch_may_take_the_index_of_the_batch(trial_class: Any, make_context: Any) -> None:
    class Framework(FrameworkDrives):
        def evaluate_batch(self, batch: Any, model: Any, batch_idx: int) -> Any:
            return {"index": batch_idx, **super().evaluate_batch(batch, model)}

    class User(UserDrives):
        def evaluate_batch(self, batch: Any, batch_idx: int) -> Any:
            return {"index": batch_idx, **super().evaluate_batch(batch)}

    adapter = adapter_of(Framework if trial_class is FrameworkDrives else User, make_context())
    adapter.train(1, never)
    rows = list(adapter._evaluate())
    assert [row["index"] for row in rows] == list(range(len(rows)))
    assert len(rows) > 1


@pytest.mark.parametrize("loss", [0.5, torch.tensor(0.5), {"loss": torch.tensor(0.5)}])
def test_the_framework_cannot_run_backward_on_a_loss_without_graph(loss: Any, make_context: Any) -> None:
    bad = type("Bad", (FrameworkDrives,), {"train_batch": lambda self, batch, model, epoch_idx, batch_idx: loss})
    with pytest.raises(InvalidTrial, match="expected a loss that requires grad"):
        adapter_of(bad, make_context()).train(1, never)


class LengthLess:
    def __iter__(self) -> Any:
        return iter([[0, 1]])


class Liar(LengthLess):
    def __len__(self) -> int:
        return 2


def without(*names: str) -> dict[str, Any]:
    return {name: getattr(PyTorchTrial, name) for name in names}


def train_with_model(self: Any, batch: Any, model: Any, epoch_idx: int, batch_idx: int) -> None: ...


def train_without_model(self: Any, batch: Any, epoch_idx: int, batch_idx: int) -> None: ...


INCOMPLETE: list[tuple[type[PyTorchTrial], dict[str, Any], str]] = [
    (FrameworkDrives, without("build_model"), r"must define build_model\(\)$"),
    (FrameworkDrives, without("build_model", "optimizer"), r"must define build_model\(\) and optimizer\(\)$"),
    (FrameworkDrives, without("evaluate_batch"), "defines neither of evaluate_batch"),
    (FrameworkDrives, {"evaluate_full_dataset": lambda self, data_loader, model: {}}, "defines both of evaluate_batch"),
    (
        FrameworkDrives,
        {"evaluate_batch": lambda self, batch: {}},
        r"add `model` to the parameters of evaluate_batch\(\)",
    ),
    (FrameworkDrives, {"train_batch": train_without_model}, r"add `model` to the parameters of train_batch\(\)"),
    (FrameworkDrives, {"create_lr_scheduler": lambda self, optimizer: 3}, r"create_lr_scheduler\(\) returned 3"),
    (FrameworkDrives, {"build_model": lambda self: None}, r"wrap_model\(\) was given None"),
    (FrameworkDrives, {"optimizer": lambda self, model: "sgd"}, r"wrap_optimizer\(\) was given 'sgd'"),
    (
        FrameworkDrives,
        {"train_batch": train_without_model, "evaluate_batch": lambda self, batch: {}},
        r"__init__ must call context.wrap_model\(\) and context.wrap_optimizer\(\); build_model\(\) and optimizer\(\)",
    ),
    (
        UserDrives,
        {"__init__": PyTorchTrial.__init__},
        r"must call context.wrap_model\(\) and context.wrap_optimizer\(\)$",
    ),
    (
        UserDrives,
        {"__init__": lambda self, context: context.wrap_model(network()) and None},
        r"must call context.wrap_optimizer\(\)$",
    ),
    (
        UserDrives,
        {"train_batch": train_with_model, "evaluate_batch": lambda self, batch, model: {}},
        r"must define build_model\(\) and optimizer\(\)",
    ),
    (
        UserDrives,
        {
            "train_batch": train_with_model,
            "evaluate_batch": lambda self, batch, model: {},
            "build_model": lambda self: None,
            "optimizer": lambda self, model: None,
        },
        "mixes two styles: .* __init__ wraps",
    ),
    (
        UserDrives,
        {"create_lr_scheduler": lambda self, optimizer: None},
        r"must call context.wrap_lr_scheduler\(\); create_lr_scheduler\(\) would be used",
    ),
    *(
        (
            UserDrives,
            {f"build_{kind}_data_loader": lambda self, loader=loader: loader()},
            f"build_{kind}_data_loader.*{message}",
        )
        for kind in ("training", "validation")
        for loader, message in [
            (lambda: [1, 2], r"returned \[1, 2\]; expected a det_torch.DataLoader"),
            (lambda: DataLoader(DATASET, 32, drop_last=True), "length 0: 20 records, batch_size 32, drop_last True"),
            (lambda: DataLoader(TensorDataset(torch.zeros(0, 1))), "length 0: 0 records"),
            (lambda: DataLoader(DATASET, batch_sampler=LengthLess()), "without a length"),
        ]
    ),
]


@pytest.mark.parametrize(("base", "changes", "message"), INCOMPLETE)
def test_an_incomplete_trial_is_refused(
    base: type[PyTorchTrial], changes: dict[str, Any], message: str, make_context: Any
) -> None:
    with pytest.raises(InvalidTrial, match=message):
        adapter_of(type("Incomplete", (base,), changes), make_context())


def test_every_trial_must_define_three_methods() -> None:
    assert PyTorchTrial.__abstractmethods__ == {
        "train_batch",
        "build_training_data_loader",
        "build_validation_data_loader",
    }
    assert PyTorchTrial.trial_context_class is PyTorchTrialContext
    assert f"{PyTorchTrial.__module__}.{PyTorchTrial.__qualname__}" == "det_torch._trial.PyTorchTrial"


def liar(name: str, yields: int) -> Any:
    return type(name, (Liar,), {"__iter__": lambda self: ([number] for number in range(yields))})()


@pytest.mark.parametrize("sampler", [liar("Shorter", 0), liar("Longer", sys.maxsize)])
def test_a_sampler_that_yields_nothing_or_does_not_end_is_refused(sampler: Any, make_context: Any) -> None:
    loader = DataLoader(DATASET, batch_sampler=sampler)
    lying = type("Lying", (UserDrives,), {"build_training_data_loader": lambda self: loader})
    with pytest.raises(InvalidTrial, match=r"length of (Shorter|Longer) is 2, but it yielded (0|more) in epoch 0"):
        adapter_of(lying, make_context()).train(1, never)


@pytest.mark.parametrize("yields", [1, 3, 7])
def test_all_batches_of_a_sampler_that_miscounts_are_used(
    yields: int, make_context: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Seen(UserDrives):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            seen.append((epoch_idx, DATASET.tensors[0].eq(batch[0]).all(1).nonzero().item()))
            return super().train_batch(batch, epoch_idx, batch_idx)

        def build_training_data_loader(self) -> Any:
            return DataLoader(DATASET, batch_sampler=liar(f"Yields{yields}", yields))

        build_validation_data_loader = build_training_data_loader

    seen: list[Any] = []
    adapter = adapter_of(Seen, make_context())
    adapter.train(4, never)
    assert seen == [(number // 2, number % yields) for number in range(4)]
    assert len(list(adapter._evaluate())) == yields
    resumed = adapter_of(Seen, context := make_context())
    context._loop.batch = 4
    resumed.train(2, never)
    assert seen[4:] == [(2, number % yields) for number in (4, 5)]
    warned = [record.getMessage() for record in caplog.records if "Correct its __len__" in record.getMessage()]
    assert warned == [
        f"the length of Yields{yields} is 2, but it yields another number of batches; all of them are used, and an "
        "epoch counts as 2 batches. Correct its __len__"
    ]


@pytest.mark.parametrize(
    ("callback", "hparam"),
    [(ClipGradsL2Norm, "clip_grad_l2_norm"), (ClipGradsL2Value, "clip_grad_val")],
)
def test_callbacks_clip_gradients_as_hyperparameters_do(callback: Any, hparam: str, make_context: Any) -> None:
    class Clipping(FrameworkDrives):
        def build_callbacks(self) -> Any:
            return {"first": callback(1e6), "second": callback(0.01)}

    by_hparam, by_callback = (make_context(hparams=hparams) for hparams in ({hparam: 0.01}, {}))
    adapter_of(FrameworkDrives, by_hparam).train(3, never)
    adapter_of(Clipping, by_callback).train(3, never)
    adapter_of(FrameworkDrives, plain := make_context()).train(3, never)
    weights = [[weight.tolist() for weight in context.models[0].parameters()] for context in (by_hparam, by_callback)]
    assert weights[0] == weights[1] != [weight.tolist() for weight in plain.models[0].parameters()]


def test_a_clipping_callback_that_is_never_called_is_warned_of(
    make_context: Any, caplog: pytest.LogCaptureFixture
) -> None:
    callbacks = {"build_callbacks": lambda self: {"clip": ClipGradsL2Norm(1)}}
    adapter_of(type("Clipping", (UserDrives,), callbacks), make_context())
    assert "pass clip_grads to context.step_optimizer() instead" in caplog.text


def test_clipping_twice_is_refused(make_context: Any) -> None:
    context = make_context(hparams={"clip_grad_val": 1, "clip_grad_l2_norm": 1})
    with pytest.raises(InvalidTrial, match="clip_grad_l2_norm and clip_grad_val exclude each other"):
        adapter_of(FrameworkDrives, context)


def test_a_plain_torch_loader_is_accepted(make_context: Any) -> None:
    loader = torch.utils.data.DataLoader(DATASET, batch_size=4)
    plain = type("Plain", (UserDrives,), {"build_training_data_loader": lambda self: loader})
    assert adapter_of(plain, make_context()).batches_per_epoch == 5


def test_the_scheduler_of_create_lr_scheduler_is_stepped(make_context: Any) -> None:
    class Scheduled(FrameworkDrives):
        def create_lr_scheduler(self, optimizer: torch.optim.Optimizer) -> LRScheduler:
            scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
            return LRScheduler(scheduler, LRScheduler.StepMode.STEP_EVERY_EPOCH)

    context = make_context()
    adapter = adapter_of(Scheduled, context)
    adapter.train(4, never)
    assert context.lr_schedulers[0].get_last_lr() == [0.1]
    adapter.train(6, never)
    assert context.lr_schedulers[0].get_last_lr() == [0.025]
