"""Callbacks get their arguments, and none of their state is lost silently."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from det_torch._callback import _HOOKS, PyTorchCallback, PyTorchCallbackList
from det_torch._checkpoints._packing import pack_state, unpack_state
from det_torch._trial import PyTorchTrial

from det_core.errors import InvalidTrial

ARGUMENTS = {
    "on_trial_startup": (3, "uuid"),
    "on_trial_shutdown": (),
    "on_training_start": (),
    "on_training_workload_end": ({"loss": 1.0}, [{"loss": 1.0}]),
    "on_training_epoch_start": (2,),
    "on_training_epoch_end": (2,),
    "on_before_optimizer_step": ([],),
    "on_validation_start": (),
    "on_validation_epoch_start": (),
    "on_validation_epoch_end": ([{"loss": 1.0}],),
    "on_validation_end": ({"loss": 1.0},),
    "on_checkpoint_save_start": ({"models_state_dict": []},),
    "on_checkpoint_load_start": (None,),
    "on_checkpoint_write_end": ("/tmp/x",),
    "on_checkpoint_upload_end": ("uuid",),
}
"""Name of each hook -> arguments of a call."""


class Recorder(PyTorchCallback):
    def __init__(self) -> None:
        self.seen: list[Any] = []


class Everything(Recorder):
    pass


def _record(hook: str) -> Any:
    return lambda self, *args: self.seen.append((hook, args))


for _hook in ARGUMENTS:
    setattr(Everything, _hook, _record(_hook))


@pytest.mark.parametrize("hook", ARGUMENTS)
def test_hooks_get_their_arguments(hook: str) -> None:
    callback = Everything()
    callbacks = PyTorchCallbackList({"first": callback, "idle": PyTorchCallback()})
    callbacks.call(hook, *ARGUMENTS[hook])
    assert callback.seen == [(hook, ARGUMENTS[hook])]
    assert callbacks.has(hook)
    assert not PyTorchCallbackList({"idle": PyTorchCallback()}).has(hook)
    assert getattr(PyTorchCallback(), hook)(*ARGUMENTS[hook]) is None


def test_these_are_all_hooks() -> None:
    assert set(_HOOKS) == {*ARGUMENTS, "on_checkpoint_end"}
    with pytest.raises(KeyError):
        PyTorchCallbackList({}).call("on_batch_end")


def test_callbacks_run_in_the_order_of_the_dict() -> None:
    order: list[str] = []

    class Named(PyTorchCallback):
        def __init__(self, name: str) -> None:
            self.name = name

        def on_training_start(self) -> None:
            order.append(self.name)

    PyTorchCallbackList({name: Named(name) for name in "cab"}).call("on_training_start")
    assert order == ["c", "a", "b"]


class TestSignatures:
    """Tests of methods whose signatures differ from their hooks, as in older releases."""

    def test_arguments_may_be_left_out(self) -> None:
        class Old(Recorder):
            def on_training_epoch_start(self) -> None:
                self.seen.append("epoch")

            def on_trial_startup(self, first: int) -> None:
                self.seen.append(first)

            def on_training_workload_end(self, batch_metrics: Any) -> None:
                self.seen.append(batch_metrics)

            def on_checkpoint_upload_end(self, *, uuid: str, **more: Any) -> None:
                self.seen.append((uuid, more))

            def on_validation_end(self, result: Any, verbose: bool = False) -> None:
                self.seen.append((result, verbose))

        old = Old()
        callbacks = PyTorchCallbackList({"old": old})
        for hook in ("on_training_epoch_start", "on_trial_startup", "on_training_workload_end"):
            callbacks.call(hook, *ARGUMENTS[hook])
        assert old.seen == ["epoch", 3, [{"loss": 1.0}]]
        callbacks.call("on_checkpoint_upload_end", "uuid")
        callbacks.call("on_validation_end", {"loss": 2.0})
        assert old.seen[3:] == [("uuid", {}), ({"loss": 2.0}, False)]

    def test_arguments_with_the_names_of_the_hook_are_passed_by_name(self) -> None:
        class Swapped(Recorder):
            def on_training_workload_end(self, batch_metrics: Any, avg_metrics: Any) -> None:
                self.seen += [avg_metrics, batch_metrics]

        swapped = Swapped()
        PyTorchCallbackList({"swapped": swapped}).call("on_training_workload_end", {"loss": 1.0}, [])
        assert swapped.seen == [{"loss": 1.0}, []]

    def test_an_attribute_is_a_hook_too(self) -> None:
        seen: list[Any] = []
        callback = PyTorchCallback()
        callback.on_validation_end = seen.append  # type: ignore[method-assign]
        PyTorchCallbackList({"c": callback}).call("on_validation_end", {"loss": 1.0})
        assert seen == [{"loss": 1.0}]

    def test_a_method_with_too_many_arguments_is_refused(self) -> None:
        class Greedy(PyTorchCallback):
            def on_validation_end(self, metrics: Any, model: Any) -> None:
                pass

        message = r"on_validation_end\(\) of the callback 'greedy' takes .*model.*, but det passes \(metrics\): missing"
        with pytest.raises(InvalidTrial, match=message):
            PyTorchCallbackList({"greedy": Greedy()})

    def test_the_older_name_of_the_checkpoint_hook_works(self) -> None:
        class Both(Recorder):
            def on_checkpoint_end(self, checkpoint_dir: str) -> None:
                self.seen.append(("old", checkpoint_dir))

            def on_checkpoint_write_end(self, checkpoint_dir: str) -> None:
                self.seen.append(("new", checkpoint_dir))

        both = Both()
        callbacks = PyTorchCallbackList({"both": both})
        callbacks.call("on_checkpoint_write_end", "/x")
        assert both.seen == [("old", "/x"), ("new", "/x")]

    def test_a_method_with_an_unknown_hook_name_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        class Misspelt(PyTorchCallback):
            def on_train_epoch_end(self, epoch_idx: int) -> None:
                pass

        PyTorchCallbackList({"m": Misspelt()})
        assert caplog.messages == [
            "on_train_epoch_end() of the callback 'm' is not a hook, so det never calls it; "
            "did you mean on_training_epoch_end()?"
        ]


class Fails(PyTorchCallback):
    def on_training_start(self) -> None:
        raise ZeroDivisionError

    def on_trial_startup(self) -> None:
        raise ZeroDivisionError


def test_an_error_is_raised_and_the_log_names_the_callback(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ZeroDivisionError):
        PyTorchCallbackList({"ema": Fails()}).call("on_training_start")
    assert caplog.messages == ["the callback 'ema' failed in on_training_start()"]


class TestRunning:
    def test_callbacks_that_started_are_shut_down(self) -> None:
        first, second, third = Everything(), Everything(), Everything()
        with (
            pytest.raises(ZeroDivisionError),
            PyTorchCallbackList({"1": first, "2": second, "bad": Fails(), "3": third}).running(5, None),
        ):
            pytest.fail("the body does not run")
        assert first.seen == second.seen == [("on_trial_startup", (5, None)), ("on_trial_shutdown", ())]
        assert third.seen == []

    def test_a_failing_shutdown_does_not_prevent_the_others(self) -> None:
        class Bad(PyTorchCallback):
            def on_trial_shutdown(self) -> None:
                raise KeyError

        good = Everything()
        with pytest.raises(KeyError), PyTorchCallbackList({"good": good, "bad": Bad()}).running(0, "uuid"):
            good.seen.append("body")
        assert good.seen == [("on_trial_startup", (0, "uuid")), "body", ("on_trial_shutdown", ())]


class Counts(PyTorchCallback):
    def __init__(self) -> None:
        self.count = 0

    def state_dict(self) -> dict[str, Any]:
        return vars(self)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.__dict__ = state_dict


class TestState:
    def test_state_is_restored_by_name(self) -> None:
        counts = Counts()
        counts.count = 3
        states = PyTorchCallbackList({"counts": counts, "idle": PyTorchCallback()}).state_dict()
        assert states == {"counts": {"count": 3}}
        restored = Counts()
        PyTorchCallbackList({"idle": PyTorchCallback(), "counts": restored}).load_state_dict(states)
        assert restored.count == 3

    def test_a_new_callback_keeps_its_initial_state(self, caplog: pytest.LogCaptureFixture) -> None:
        new = Counts()
        with caplog.at_level(logging.INFO):
            PyTorchCallbackList({"new": new, "idle": PyTorchCallback()}).load_state_dict({})
        assert new.count == 0
        assert caplog.messages == ["the checkpoint has no state of the callback 'new', which keeps its initial state"]

    @pytest.mark.parametrize(
        ("callbacks", "message"),
        [
            ({}, r"state of the callback 'counts', but build_callbacks\(\) returned \[\]; return a callback with"),
            ({"counts": PyTorchCallback()}, r"'counts', which is a PyTorchCallback without load_state_dict\(\)"),
        ],
    )
    def test_a_state_without_a_callback_is_an_error(self, callbacks: Any, message: str) -> None:
        with pytest.raises(InvalidTrial, match=message):
            PyTorchCallbackList(callbacks).load_state_dict({"counts": {"count": 3}})

    def test_an_empty_state_needs_no_callback(self) -> None:
        """The original saved one for each callback without a state."""
        PyTorchCallbackList({"idle": PyTorchCallback()}).load_state_dict({"idle": {}, "removed": {}})

    @pytest.mark.parametrize("state", [[1, (2.5, None)], "text", 0, None])
    def test_a_state_need_not_be_a_dict(self, state: Any) -> None:
        class Keeper(PyTorchCallback):
            kept: Any = "initial"

            def state_dict(self) -> Any:
                return state

            def load_state_dict(self, state_dict: Any) -> None:
                self.kept = state_dict

        saved = pack_state(PyTorchCallbackList({"keeper": Keeper()}).state_dict())
        PyTorchCallbackList({"keeper": (keeper := Keeper())}).load_state_dict(unpack_state(saved))
        assert keeper.kept == state

    def test_state_dict_without_load_state_dict_is_refused(self) -> None:
        half = type("Half", (PyTorchCallback,), {"state_dict": lambda self: {"a": 1}})
        with pytest.raises(InvalidTrial, match=r"'half' defines state_dict\(\) but not load_state_dict\(\)"):
            PyTorchCallbackList({"half": half()})


@pytest.mark.parametrize("returned", [None, [PyTorchCallback()], {"a": object()}, {1: PyTorchCallback()}])
def test_other_results_of_build_callbacks_are_refused(returned: Any) -> None:
    with pytest.raises(InvalidTrial, match=r"build_callbacks\(\) returned .*expected a dict of names"):
        PyTorchCallbackList(returned)


class Trial(PyTorchTrial):
    def train_batch(self, batch: Any) -> Any: ...

    def build_training_data_loader(self) -> Any: ...

    def build_validation_data_loader(self) -> Any: ...


def test_a_trial_has_no_callbacks_by_default(make_context: Any) -> None:
    assert Trial(make_context()).build_callbacks() == {}


@pytest.mark.parametrize(
    "batch", [torch.zeros(3, 2), np.zeros(3), [torch.zeros(3), 1], {"x": (np.zeros((3, 1)),), "y": 0}]
)
def test_the_length_of_a_batch_is_that_of_its_first_array(batch: Any, make_context: Any) -> None:
    assert Trial(make_context()).get_batch_length(batch) == 3


@pytest.mark.parametrize("batch", ["abc", {}, [], torch.tensor(1), object()])
def test_a_batch_without_an_array_has_no_known_length(batch: Any, make_context: Any) -> None:
    with pytest.raises(InvalidTrial, match=r"override get_batch_length\(\)"):
        Trial(make_context()).get_batch_length(batch)
