"""User callbacks that run at certain points of a trial."""

from __future__ import annotations

import ast
import inspect
import logging
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from difflib import get_close_matches
from typing import Any

from det_core.errors import InvalidTrial

_log = logging.getLogger("det.torch")


class PyTorchCallback:
    """Base class of callbacks.

    Derive from it, override the methods that you need, and return instances from `PyTorchTrial.build_callbacks`::

        class StopEarly(PyTorchCallback):
            def __init__(self, context):
                self.context, self.best = context, float("inf")

            def on_validation_end(self, metrics):
                if metrics["validation_loss"] > self.best:
                    self.context.set_stop_requested(True)
                self.best = min(self.best, metrics["validation_loss"])

            def state_dict(self):
                return {"best": self.best}

            def load_state_dict(self, state_dict):
                self.best = state_dict["best"]

    Every slot has its own callbacks, which run in the order of the dict. A method may omit arguments that it does not
    need. An exception in a method fails the trial.

    Metrics are passed as NumPy values. Numbers become scalars, and tensors and lists of numbers become arrays.

    A callback with state must define `state_dict` and `load_state_dict`. Otherwise its state is lost when the trial is
    resumed.
    """

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the callback to save in checkpoints, which need not be a dict.

        It may consist of tensors, numbers, strings, bytes, NumPy values, times, and containers of them. Checkpoints do
        not hold objects of other classes, because code would run when they are loaded.
        """
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state that `state_dict` returned. Called before `on_training_start`.

        Args:
            state_dict: the saved state, with all tensors on the CPU.
        """

    def on_trial_startup(self, first_batch_idx: int, checkpoint_uuid: str | None) -> None:
        """Run before the data loaders are built and training begins.

        Args:
            first_batch_idx: number of the first batch to train, from 0. It is 0 unless the trial is resumed.
            checkpoint_uuid: UUID of the checkpoint from which training starts, or None. Another trial may have
                written it.
        """

    def on_trial_shutdown(self) -> None:
        """Run before the process ends, even after an error, provided that `on_trial_startup` succeeded."""

    def on_training_start(self) -> None:
        """Run after everything is restored and before the first batch."""

    def on_training_workload_end(self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]) -> None:
        """Run after training metrics were aggregated for a report.

        Args:
            avg_metrics: the reported metrics, which are means over the batches and results of metric reducers.
            batch_metrics: one dict of metrics per batch since the last report, oldest first.
        """

    def on_training_epoch_start(self, epoch_idx: int) -> None:
        """Run before the first batch of an epoch.

        Args:
            epoch_idx: number of the epoch, from 0.
        """

    def on_training_epoch_end(self, epoch_idx: int) -> None:
        """Run after the last batch of an epoch.

        Args:
            epoch_idx: number of the epoch, from 0.
        """

    def on_before_optimizer_step(self, parameters: Sequence[Any]) -> None:
        """Run before the optimizer of a trial that defines ``build_model`` steps, usually to clip gradients.

        Gradients are averaged over slots and aggregated batches, and already clipped if hyperparameters say so. Trials
        that call `PyTorchTrialContext.step_optimizer` pass ``clip_grads`` to it instead.

        Args:
            parameters: the parameters of the optimizer.
        """

    def on_validation_start(self) -> None:
        """Run before a validation. With this hook, a preempted trial finishes its validation before it stops."""

    def on_validation_epoch_start(self) -> None:
        """Run before the first batch of ``evaluate_batch``. Delays preemption as `on_validation_start` does."""

    def on_validation_epoch_end(self, outputs: list[Any]) -> None:
        """Run after the last batch of a validation by ``evaluate_batch``.

        Args:
            outputs: metrics of each batch of all slots.
        """

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        """Run after a validation.

        Args:
            metrics: the metrics that are reported next. Changes to them are reported too.
        """

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        """Run on the chief before a checkpoint is written.

        Args:
            checkpoint: content of the checkpoint's file, which the callback may change.
        """

    def on_checkpoint_load_start(self, checkpoint: dict[str, Any] | None) -> None:
        """Run before anything is restored from a checkpoint. Not called if the trial starts without one.

        Args:
            checkpoint: content of the checkpoint's file.
        """

    def on_checkpoint_write_end(self, checkpoint_dir: str) -> None:
        """Run on the chief after a checkpoint is written to a directory and before it is stored.

        Args:
            checkpoint_dir: the directory. Files that the callback adds to it are stored too.
        """

    def on_checkpoint_end(self, checkpoint_dir: str) -> None:
        """Run like `on_checkpoint_write_end`, whose old name this is.

        Args:
            checkpoint_dir: as for `on_checkpoint_write_end`.
        """

    def on_checkpoint_upload_end(self, uuid: str) -> None:
        """Run after a checkpoint is stored.

        Args:
            uuid: UUID under which the checkpoint can be downloaded.
        """


_HOOKS = {
    name: tuple(inspect.signature(function).parameters)[1:]
    for name, function in vars(PyTorchCallback).items()
    if name.startswith("on_")
}
"""Name of each hook -> names of its arguments."""
_OLD_NAMES = {"on_checkpoint_end": "on_checkpoint_write_end"}
_ON_METRICS = ("on_validation_epoch_end", "on_validation_end")
"""Hooks whose last argument is reported next, so that they may add metrics."""


class PyTorchCallbackList:
    """All callbacks of one trial. A hook that no callback overrides costs one dict lookup.

    Args:
        callbacks: return value of ``build_callbacks()``, a dict of names to callbacks.

    Raises:
        InvalidTrial: ``callbacks`` is not such a dict, or a method has arguments that its hook does not provide.
    """

    def __init__(self, callbacks: Mapping[str, PyTorchCallback]) -> None:
        _check(callbacks)
        self._callbacks = dict(callbacks)
        self._hooks: dict[str, list[tuple[str, Callable[..., Any]]]] = {
            hook: [] for hook in _HOOKS if hook not in _OLD_NAMES
        }
        for name, callback in self._callbacks.items():
            _check_state_methods(name, callback)
            _warn_of_unknown_hooks(name, callback)
            for hook in filter(lambda hook: _overrides(callback, hook), sorted(_HOOKS)):
                run = _fitted(getattr(callback, hook), _HOOKS[hook], f"{hook}() of the callback {name!r}")
                self._hooks[_OLD_NAMES.get(hook, hook)].append((name, run))

    def has(self, hook: str) -> bool:
        """Return whether any callback overrides a hook."""
        return bool(self._hooks[hook])

    def have_state(self) -> bool:
        """Return whether any callback has a state."""
        return any(_overrides(callback, "state_dict") for callback in self._callbacks.values())

    def may_add_metrics(self) -> bool:
        """Return whether a callback may add validation metrics, unless its code visibly does not."""
        return any(
            _overrides(callback, hook) and not _only_reads(getattr(callback, hook))
            for callback in self._callbacks.values()
            for hook in _ON_METRICS
        )

    def call(self, hook: str, *args: Any) -> None:
        """Run a hook of all callbacks that override it.

        Args:
            hook: name of the hook. ``on_checkpoint_write_end`` also runs ``on_checkpoint_end``, its old name.
            args: all arguments of the hook.
        """
        for name, run in self._hooks[hook]:
            _call(name, hook, run, args)

    @contextmanager
    def running(self, first_batch_idx: int, checkpoint_uuid: str | None) -> Iterator[None]:
        """Start all callbacks, and shut down those that started in reverse order after the block.

        The callbacks are shut down even if the block or the startup of another callback fails.

        Args:
            first_batch_idx: as for `PyTorchCallback.on_trial_startup`.
            checkpoint_uuid: as for `PyTorchCallback.on_trial_startup`.
        """
        shutdowns = dict(self._hooks["on_trial_shutdown"])
        startups = dict(self._hooks["on_trial_startup"])
        with ExitStack() as stack:
            for name in self._callbacks:
                if name in startups:
                    _call(name, "on_trial_startup", startups[name], (first_batch_idx, checkpoint_uuid))
                if name in shutdowns:
                    stack.callback(_call, name, "on_trial_shutdown", shutdowns[name], ())
            yield

    def state_dict(self) -> dict[str, dict[str, Any]]:
        """Return the state of every callback that has one, by name. Its types are not checked."""
        return {
            name: callback.state_dict()
            for name, callback in self._callbacks.items()
            if _overrides(callback, "state_dict")
        }

    def load_state_dict(self, states: Mapping[str, dict[str, Any]]) -> None:
        """Restore the state of every callback.

        Args:
            states: states by name of the callback.

        Raises:
            InvalidTrial: a state belongs to a callback that is missing or cannot load it.
        """
        for name, state in states.items():
            callback = self._callbacks.get(name)
            loads = callback is not None and _overrides(callback, "load_state_dict")
            if isinstance(state, dict) and not state and not loads:  # the original saved one for each callback
                continue
            if callback is None:
                raise InvalidTrial(
                    f"the checkpoint has a state of the callback {name!r}, but build_callbacks() returned "
                    f"{sorted(self._callbacks)}; return a callback with this name"
                )
            if not loads:
                raise InvalidTrial(
                    f"the checkpoint has a state of the callback {name!r}, which is a {type(callback).__name__} "
                    "without load_state_dict(); define it"
                )
            callback.load_state_dict(state)
        for name, callback in self._callbacks.items():
            if name not in states and _overrides(callback, "load_state_dict"):
                _log.info("the checkpoint has no state of the callback %r, which keeps its initial state", name)


def _call(name: str, hook: str, run: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        run(*args)
    except Exception:
        _log.error("the callback %r failed in %s()", name, hook)
        raise


def _check(callbacks: Any) -> None:
    if not isinstance(callbacks, Mapping) or not all(
        isinstance(name, str) and isinstance(callback, PyTorchCallback) for name, callback in callbacks.items()
    ):
        raise InvalidTrial(
            f"build_callbacks() returned {callbacks!r}; expected a dict of names to det_torch.PyTorchCallback objects, "
            'such as {"early stop": StopEarly(self.context)}'
        )


def _check_state_methods(name: str, callback: PyTorchCallback) -> None:
    if _overrides(callback, "state_dict") and not _overrides(callback, "load_state_dict"):
        raise InvalidTrial(
            f"the callback {name!r} defines state_dict() but not load_state_dict(), so its state would be lost when "
            "the trial is resumed; define both"
        )


def _warn_of_unknown_hooks(name: str, callback: PyTorchCallback) -> None:
    for method in dir(callback):
        if method.startswith("on_") and method not in _HOOKS:
            known = get_close_matches(method, _HOOKS, n=1)
            meant = f"; did you mean {known[0]}()?" if known else ""
            _log.warning("%s() of the callback %r is not a hook, so det never calls it%s", method, name, meant)


def _overrides(callback: PyTorchCallback, method: str) -> bool:
    return getattr(getattr(callback, method), "__func__", None) is not getattr(PyTorchCallback, method)


def _only_reads(method: Callable[..., Any]) -> bool:
    """Return whether a method visibly uses its last argument only for ``argument[name]`` and ``argument.get(name)``."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
    except (OSError, TypeError, SyntaxError):  # the source is not a file, or only a part of a statement
        return False
    nodes = list(ast.walk(tree))
    reads = {id(node.value) for node in nodes if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)}
    reads |= {id(node.value) for node in nodes if isinstance(node, ast.Attribute) and node.attr == "get"}
    [argument] = list(inspect.signature(method).parameters)[-1:] or [""]
    return all(id(node) in reads for node in nodes if isinstance(node, ast.Name) and node.id == argument)


def _fitted(function: Callable[..., Any], names: tuple[str, ...], what: str) -> Callable[..., Any]:
    """Return a wrapper that takes all arguments of a hook and passes on those that a method accepts.

    Arguments are passed by name if the method uses the names of the hook, and by position otherwise.

    Args:
        function: the method.
        names: names of the hook's arguments.
        what: description of the method for messages.

    Raises:
        InvalidTrial: the method has arguments that the hook does not provide.
    """
    signature = inspect.signature(function)
    kinds = inspect.Parameter
    if any(parameter.kind is kinds.VAR_POSITIONAL for parameter in signature.parameters.values()):
        return function
    own = [name for name, parameter in signature.parameters.items() if parameter.kind is not kinds.VAR_KEYWORD]
    if set(own) <= set(names):
        return lambda *args: function(**{name: arg for name, arg in zip(names, args, strict=True) if name in own})
    try:
        signature.bind(*names[: len(own)])
    except TypeError as error:
        raise InvalidTrial(f"{what} takes {signature}, but det passes ({', '.join(names)}): {error}") from None
    return lambda *args: function(*args[: len(own)])
