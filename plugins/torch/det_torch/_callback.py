"""Code of the user's that runs at certain moments of a trial."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from difflib import get_close_matches
from typing import Any

from det_core.errors import InvalidTrial

_log = logging.getLogger("det.torch")


class PyTorchCallback:
    """Derive from it, override what you need, and return instances from `PyTorchTrial.build_callbacks`::

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

    Every slot has callbacks of its own, which run in the order of the dict. A method may leave out arguments that
    it does not need. One that raises fails the trial.

    Metrics arrive as NumPy values: numbers as scalars, tensors and lists of numbers as arrays.

    One that remembers anything defines `state_dict` and `load_state_dict`, or its memory ends with the process.
    """

    def state_dict(self) -> dict[str, Any]:
        """What to put into checkpoints: tensors, numbers, strings, bytes, numpy values, and containers of them."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take back what `state_dict` returned, tensors on the CPU; called before `on_training_start`."""

    def on_trial_startup(self, first_batch_idx: int, checkpoint_uuid: str | None) -> None:
        """Before the data loaders are built and anything is trained.

        Args:
            first_batch_idx: number of the batch that is trained first; 0 unless the trial continues.
            checkpoint_uuid: what it is going to start from, which another trial may have written; None for nothing.
        """

    def on_trial_shutdown(self) -> None:
        """Before the process ends, also after an error, if `on_trial_startup` was through."""

    def on_training_start(self) -> None:
        """After everything is restored, before the first batch."""

    def on_training_workload_end(self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]) -> None:
        """After training metrics were put together for a report.

        Args:
            avg_metrics: what is reported: means over the batches, and what reducers made of them.
            batch_metrics: one dict per batch since the last report, oldest first.
        """

    def on_training_epoch_start(self, epoch_idx: int) -> None:
        """Before the first batch of an epoch; ``epoch_idx`` counts from 0."""

    def on_training_epoch_end(self, epoch_idx: int) -> None:
        """After the last batch of an epoch; ``epoch_idx`` counts from 0."""

    def on_validation_start(self) -> None:
        """Called before a validation. With this hook, a trial that is preempted finishes the validation first."""

    def on_validation_epoch_start(self) -> None:
        """Called before the first batch of ``evaluate_batch``. Delays preemption as `on_validation_start` does."""

    def on_validation_epoch_end(self, outputs: list[Any]) -> None:
        """After the last batch of a validation by ``evaluate_batch``; ``outputs`` has the metrics of each batch."""

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        """After a validation, with the metrics that are reported."""

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        """On the chief, before a checkpoint is written; ``checkpoint``, what its file will hold, may be changed."""

    def on_checkpoint_load_start(self, checkpoint: dict[str, Any] | None) -> None:
        """Before anything is restored from ``checkpoint``, what its file holds. Not called if the trial begins anew."""

    def on_checkpoint_write_end(self, checkpoint_dir: str) -> None:
        """On the chief, once a checkpoint is in a directory but not stored yet: files that you add are stored too."""

    def on_checkpoint_end(self, checkpoint_dir: str) -> None:
        """The same moment as `on_checkpoint_write_end`, under its older name."""

    def on_checkpoint_upload_end(self, uuid: str) -> None:
        """After a checkpoint is stored, and can be had under this uuid."""


_HOOKS = {
    name: tuple(inspect.signature(function).parameters)[1:]
    for name, function in vars(PyTorchCallback).items()
    if name.startswith("on_")
}
"""Every hook, and the names of its arguments."""
_OLD_NAMES = {"on_checkpoint_end": "on_checkpoint_write_end"}


class Callbacks:
    """All callbacks of one trial. A hook that none of them overrides costs one look into a dict.

    Args:
        callbacks: what ``build_callbacks()`` returned.

    Raises:
        InvalidTrial: it is no dict of names to callbacks, or a method could not be called.
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
        """Whether any callback overrides this hook."""
        return bool(self._hooks[hook])

    def call(self, hook: str, *args: Any) -> None:
        """Run a hook with all of its arguments; ``on_checkpoint_write_end`` runs ``on_checkpoint_end`` too."""
        for name, run in self._hooks[hook]:
            _call(name, hook, run, args)

    @contextmanager
    def running(self, first_batch_idx: int, checkpoint_uuid: str | None) -> Iterator[None]:
        """Start all up, and shut down those that did start, the last first, whatever happens in between."""
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
        """The state of every callback that has one, by name, in whatever types it keeps."""
        return {
            name: callback.state_dict()
            for name, callback in self._callbacks.items()
            if _overrides(callback, "state_dict")
        }

    def load_state_dict(self, states: Mapping[str, dict[str, Any]]) -> None:
        """Give every callback its state back.

        Raises:
            InvalidTrial: there is a state that no callback would take.
        """
        for name, state in states.items():
            callback = self._callbacks.get(name)
            if callback is None:
                raise InvalidTrial(
                    f"the checkpoint has a state of the callback {name!r}, but build_callbacks() returned "
                    f"{sorted(self._callbacks)}; return one of that name"
                )
            if not _overrides(callback, "load_state_dict"):
                raise InvalidTrial(
                    f"the checkpoint has a state of the callback {name!r}, which is a {type(callback).__name__} "
                    "without load_state_dict(); define it"
                )
            callback.load_state_dict(state)
        for name, callback in self._callbacks.items():
            if name not in states and _overrides(callback, "load_state_dict"):
                _log.info("the checkpoint has no state of the callback %r, which starts anew", name)


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
            _log.warning("%s() of the callback %r is none of the hooks, so det never calls it%s", method, name, meant)


def _overrides(callback: PyTorchCallback, method: str) -> bool:
    return getattr(getattr(callback, method), "__func__", None) is not getattr(PyTorchCallback, method)


def _fitted(function: Callable[..., Any], names: tuple[str, ...], what: str) -> Callable[..., Any]:
    """One that takes all arguments, and passes those on that the function takes: by name if all names are ours."""
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
        raise InvalidTrial(f"{what} takes {signature}, but it gets ({', '.join(names)}): {error}") from None
    return lambda *args: function(*args[: len(own)])
