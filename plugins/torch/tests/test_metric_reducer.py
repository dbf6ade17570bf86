"""Reducers get the values of all slots since the last report, and survive validations and checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from det_torch._batch_reduction import Reducer, reduce_metrics
from det_torch._checkpoints._packing import map_leaves
from det_torch._metric_reducer import MetricReducer, ReducerSet
from det_torch._metrics import validation_metrics

from det_core.core import single_process
from det_core.errors import InvalidTrial
from tests.comm.job import KEY, layout, threads

ALONE = single_process()
gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]


class Mean(MetricReducer):
    """Reducer with containers, which ``reset`` changes in place."""

    def __init__(self, scale: Any = abs) -> None:
        self.scale = scale
        self.values: list[Any] = []
        self.total = torch.zeros(())
        self.seen = np.zeros(1, np.int64)

    def reset(self) -> None:
        self.values.clear()
        self.total.zero_()
        self.seen[:] = 0

    def update(self, value: float) -> None:
        self.values.append(value)
        self.total += value
        self.seen += 1

    def per_slot_reduce(self) -> Any:
        return self.total, self.seen.item()

    def cross_slot_reduce(self, per_slot_metrics: list[Any]) -> Any:
        return sum(total for total, _ in per_slot_metrics) / sum(seen for _, seen in per_slot_metrics)


class Named(Mean):
    def cross_slot_reduce(self, per_slot_metrics: list[Any]) -> Any:
        return {"mean": super().cross_slot_reduce(per_slot_metrics), "slots": len(per_slot_metrics)}


class Exact(Mean):
    """Reducer with an attribute that checkpoints cannot hold, and therefore its own ``state_dict``."""

    def __init__(self) -> None:
        super().__init__()
        self.trial = object()

    def state_dict(self) -> dict[str, Any]:
        return {"values": self.values, "total": self.total, "seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


def test_an_empty_set_has_no_metrics() -> None:
    reducers = ReducerSet()
    assert not reducers
    assert reducers.reduce(ALONE, training=True) == {}
    with reducers.validating():
        pass
    assert reducers.state_dict() == []


def test_functions_and_objects_are_reduced() -> None:
    reducers = ReducerSet()
    last = reducers.wrap(lambda values: values[-1], "last")
    mean = reducers.wrap(Mean(), "mean of one")
    named = reducers.wrap(Named())
    several = reducers.wrap(lambda pairs: {"first": pairs[0][0], "shape": np.shape(pairs[0][1])})
    assert reducers
    for value in (1.0, 3.0):
        last.update(torch.tensor([value], requires_grad=True))
        mean.update(value)
        named.update(value)
        several.update((np.float32(value), torch.ones(2)))
    metrics = reducers.reduce(ALONE, training=True)
    assert metrics == {"last": [3.0], "mean of one": 2.0, "mean": 2.0, "slots": 1, "first": 1.0, "shape": [2]}
    assert [type(value) for value in metrics.values()] == [list, float, float, int, float, list]


def test_a_reducer_serves_training_or_validation_or_both() -> None:
    reducers = ReducerSet()
    wrapped = {
        "both": reducers.wrap(len, "both"),
        "training": reducers.wrap(len, "training", for_validation=False),
        "validation": reducers.wrap(len, "validation", for_training=False),
    }
    for reducer in wrapped.values():
        reducer.update(0)
    assert reducers.reduce(ALONE, training=True) == {"both": 1, "training": 1}
    reducers.reset(training=True)
    assert reducers.reduce(ALONE, training=True) == {"both": 0, "training": 0}
    assert reducers.reduce(ALONE, training=False) == {"both": 0, "validation": 1}


def test_values_are_copied() -> None:
    reducers = ReducerSet()
    total = reducers.wrap(lambda values: sum(tensor.item() + array.item() for tensor, array in values), "total")
    tensor, array = torch.ones(()), np.ones(1)
    for _ in range(2):
        total.update([tensor, array])
        tensor += 1
        array += 1
    assert reducers.reduce(ALONE, training=True) == {"total": 2 + 4}


def test_wrapping_resets_a_reducer() -> None:
    mean = Mean()
    mean.update(1.0)
    ReducerSet().wrap(mean)
    assert mean.values == []


class TestValidationBetweenTwoReports:
    @pytest.mark.parametrize("make", [Mean, Exact, lambda: sum], ids=["attributes", "state_dict", "function"])
    def test_a_validation_keeps_the_values_of_training(self, make: Any) -> None:
        reducers = ReducerSet()
        both = reducers.wrap(make(), "m")
        both.update(1.0)
        both.update(2.0)
        expected = reducers.reduce(ALONE, training=True)
        with reducers.validating():
            both.update(10.0)
            assert reducers.reduce(ALONE, training=False) == {"m": 10.0}
        assert reducers.reduce(ALONE, training=True) == expected
        both.update(3.0)
        assert reducers.reduce(ALONE, training=True) == ({"m": 6.0} if expected == {"m": 3.0} else {"m": 2.0})

    def test_a_failed_validation_leaves_no_trace(self) -> None:
        reducers = ReducerSet()
        mean = reducers.wrap(Mean(), "mean")
        with pytest.raises(ZeroDivisionError), reducers.validating():
            mean.update(1.0)
            1 / 0  # noqa: B018
        assert mean.values == []
        assert mean.scale is abs

    def test_one_object_may_have_two_names(self) -> None:
        reducers, mean = ReducerSet(), Mean()
        reducers.wrap(mean, "training mean", for_validation=False)
        reducers.wrap(mean, "validation mean", for_training=False)
        mean.update(1.0)
        with reducers.validating():
            mean.update(5.0)
            assert reducers.reduce(ALONE, training=False) == {"validation mean": 5.0}
        assert reducers.reduce(ALONE, training=True) == {"training mean": 1.0}
        assert len(reducers.state_dict()) == 1

    def test_every_validation_begins_without_values(self) -> None:
        reducers = ReducerSet()
        count = reducers.wrap(len, "n", for_training=False)
        for _ in range(2):
            with reducers.validating():
                count.update(0)
                assert reducers.reduce(ALONE, training=False) == {"n": 1}


class OnDevice(Mean):
    """Reducer with values on an accelerator, and others on the CPU."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.totals: list[torch.Tensor] = []
        self.device = device

    def update(self, value: float) -> None:
        super().update(value)
        self.totals.append(torch.full((2,), value, device=self.device))


class TestState:
    def trial(self) -> tuple[ReducerSet, list[Any]]:
        reducers = ReducerSet()
        return reducers, [
            reducers.wrap(Mean(), "mean"),
            reducers.wrap(Exact(), "exact"),
            reducers.wrap(np.sum, "sum"),
            reducers.wrap(np.max, "validation", for_training=False),
        ]

    def test_state_passes_through_a_checkpoint(self, tmp_path: Path) -> None:
        saved, updated = self.trial()
        for reducer in updated:
            reducer.update(np.float32(1.5))
        torch.save(saved.state_dict(), tmp_path / "state.pth")
        restored, continued = self.trial()
        restored.load_state_dict(torch.load(tmp_path / "state.pth", weights_only=True), torch.device("cpu"))
        for reducer in (*updated, *continued):
            reducer.update(0.5)
        assert restored.reduce(ALONE, training=True) == saved.reduce(ALONE, training=True)
        assert restored.reduce(ALONE, training=True) == {"mean": 1.0, "exact": 1.0, "sum": 2.0}
        assert continued[0].values == [np.float32(1.5), 0.5]
        assert type(continued[0].values[0]) is np.float32

    def test_state_of_other_code_is_refused(self) -> None:
        with pytest.raises(InvalidTrial, match="has 3 metric reducers for training, but the trial has 0"):
            ReducerSet().load_state_dict(self.trial()[0].state_dict(), torch.device("cpu"))

    @pytest.mark.parametrize("device", ["meta", pytest.param("cuda", marks=gpu)])
    def test_tensors_return_to_the_accelerator(self, device: str) -> None:
        """A checkpoint is read on the CPU. The device ``meta`` stands for an accelerator."""
        saved, restored = ReducerSet(), ReducerSet()
        reducer, continued = (reducers.wrap(OnDevice(device), "m") for reducers in (saved, restored))
        reducer.update(1.5)
        read = map_leaves(saved.state_dict(), lambda leaf, _: torch.zeros(2) if torch.is_tensor(leaf) else leaf)
        restored.load_state_dict(read, torch.device(device))
        assert [total.device.type for total in continued.totals] == [device]
        assert continued.total.device.type == "cpu"

    def test_attributes_that_a_checkpoint_cannot_hold_are_named_and_left_as_they_are(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        def make() -> tuple[ReducerSet, Any]:
            reducers, mean = ReducerSet(), Mean()
            mean.trial = object()
            return reducers, reducers.wrap(mean, "accuracy")

        (saved, reducer), (restored, continued) = make(), make()
        trial = continued.trial
        reducer.update(1.5)
        with restored.validating():
            pass
        for _ in range(2):
            restored.load_state_dict(saved.state_dict(), torch.device("cpu"))
        assert continued.trial is trial
        assert restored.reduce(ALONE, training=True) == {"accuracy": 1.5}
        named = "checkpoints leave out the attribute 'trial' of the reducer accuracy; "
        assert [message.startswith(named) for message in caplog.messages] == [True, True]
        ReducerSet().wrap(continued, for_training=False)
        assert len(caplog.messages) == 2

    def test_a_state_dict_that_a_checkpoint_cannot_hold_is_refused_at_once(self) -> None:
        exact = Exact()
        exact.seen = np.random.default_rng()  # type: ignore[assignment]
        exact.reset = lambda: None  # type: ignore[method-assign]
        with pytest.raises(InvalidTrial, match=r"reducers\.Exact\.seen is a numpy\.random.*Generator"):
            ReducerSet().wrap(exact)
        ReducerSet().wrap(exact, for_training=False)


@pytest.mark.parametrize(
    ("reducer", "name", "message"),
    [
        (lambda values: 1, None, "<lambda> returned 1; expected a dict of metrics, or a name in wrap_reducer"),
        (lambda values: {"a": 1}, "auc", "the reducer auc returned {'a': 1}; expected one value, or no name"),
        (lambda values: object(), "auc", "the metric 'auc' is <object"),
        (
            lambda values: {"loss": 1},
            None,
            r"the metric 'loss' comes from train_batch\(\) and from the reducer <lambda>",
        ),
        (
            lambda values: 1,
            "count",
            "the metric 'count' comes from the reducer count and from the reducer count; rename",
        ),
    ],
)
def test_bad_metrics_are_refused(reducer: Any, name: Any, message: str) -> None:
    reducers = ReducerSet()
    reducers.wrap(len, "count")
    reducers.wrap(reducer, name)
    with pytest.raises(InvalidTrial, match=message):
        reducers.reduce(ALONE, training=True, taken={"loss": 0.5}.keys())


def test_other_objects_are_refused() -> None:
    with pytest.raises(InvalidTrial, match=r"wrap_reducer\(\) was given 3; expected a det_torch.MetricReducer"):
        ReducerSet().wrap(3)  # type: ignore[arg-type]


def test_an_evaluation_may_leave_all_metrics_to_reducers() -> None:
    rows = [validation_metrics({}, "evaluate_batch", may_be_empty=True) for _ in range(2)]
    assert reduce_metrics(rows, Reducer.AVG) == {}
    with pytest.raises(InvalidTrial, match=r"evaluate_batch\(\) returned {}; expected a dict"):
        validation_metrics({}, "evaluate_batch")
    with pytest.raises(InvalidTrial, match=r"evaluate_batch\(\) returned None; expected a dict"):
        validation_metrics(None, "evaluate_batch", may_be_empty=True)


class Largest(MetricReducer):
    """Largest value of each place, as tensors that need gradients."""

    def reset(self) -> None:
        self.largest = torch.zeros(2)

    def per_slot_reduce(self) -> dict[str, torch.Tensor]:
        return {"largest": self.largest.requires_grad_()}

    def cross_slot_reduce(self, per_slot_metrics: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        assert not any(one["largest"].requires_grad for one in per_slot_metrics)
        return {"largest": torch.stack([one["largest"] for one in per_slot_metrics]).amax(0)}


def test_two_slots_reduce_their_values_in_one_gather(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_COMM_KEY", KEY)

    def slot(distributed: Any) -> Any:
        gathers, allgather = [], distributed.allgather
        distributed.allgather = lambda stuff: gathers.append(stuff) or allgather(stuff)
        reducers = ReducerSet()
        order = reducers.wrap(list, "order")
        total = reducers.wrap(lambda values: sum(values).tolist(), "total")
        largest = reducers.wrap(Largest())
        for batch in range(3 - distributed.rank):
            order.update(10 * batch + distributed.rank)
            total.update(torch.ones(2))
        largest.largest[distributed.rank] = 7
        return reducers.reduce(distributed, training=True), len(gathers)

    expected = {"order": [0, 1, 10, 11, 20], "total": [5.0, 5.0], "largest": [7.0, 7.0]}
    assert threads(layout(2), slot) == [(expected, 1)] * 2
