"""Common form of the two styles of trials for the training loop."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from det_core.errors import InvalidTrial
from det_torch._callback import PyTorchCallbackList
from det_torch._context import PyTorchTrialContext
from det_torch._lr_scheduler import LRScheduler
from det_torch._metrics import no_loss
from det_torch._optimizer_steps import ClipGrads
from det_torch._trial import PyTorchTrial

_log = logging.getLogger("det.torch")

_CLIPPERS: dict[str, tuple[Callable[..., Any], str]] = {
    "clip_grad_l2_norm": (torch.nn.utils.clip_grad_norm_, "max_norm"),
    "clip_grad_val": (torch.nn.utils.clip_grad_value_, "clip_value"),
}
"""Mapping of hyperparameter names to the function that clips gradients and its argument for the value."""
_FIRST_STYLE = ("build_model", "optimizer", "create_lr_scheduler")
_BEFORE_STEP = "on_before_optimizer_step"
_EVALUATIONS = ("evaluate_batch", "evaluate_full_dataset")


@dataclass(frozen=True)
class TrialSteps:
    """Functions of a trial that the training loop calls, independent of the style."""

    train_batch: Callable[[Any, int, int], Any]
    """Function ``(batch, epoch_idx, batch_idx) -> metrics`` that includes the optimizer's step."""
    evaluate: Callable[[Any, int], Any]
    """Function ``(batch, number of batches evaluated before on this slot) -> metrics``.

    With ``full_dataset`` its arguments are ``(loader, 0)``.
    """
    full_dataset: bool
    """Whether the trial evaluates the whole validation set in one call."""


def build_trial_steps(trial: PyTorchTrial, context: PyTorchTrialContext, callbacks: PyTorchCallbackList) -> TrialSteps:
    """Check that the trial is complete and of one style, and build the parts that its style leaves to det.

    Args:
        trial: trial to check.
        context: context that the trial was made with.
        callbacks: callbacks of the trial.

    Raises:
        InvalidTrial: the trial is incomplete or mixes styles. The message names the missing part.
    """
    evaluation = _evaluation(trial)
    framework_drives = takes_model(trial, "train_batch")
    if takes_model(trial, evaluation) is not framework_drives:
        with_model, without = ("train_batch", evaluation) if framework_drives else (evaluation, "train_batch")
        raise InvalidTrial(
            f"{_name(trial)} mixes two styles: {with_model}() takes `model` but {without}() does not; "
            f"add `model` to the parameters of {without}(), or remove it from {with_model}()"
        )
    if callbacks.has(_BEFORE_STEP) and not framework_drives:
        _log.warning(
            "%s(), which a callback defines, is called only for trials whose train_batch() takes `model`; "
            "pass clip_grads to context.step_optimizer() instead",
            _BEFORE_STEP,
        )
    drive = partial(_framework_drives, callbacks) if framework_drives else _user_drives
    train_batch, evaluate = drive(trial, context, _with_index(getattr(trial, evaluation)))
    return TrialSteps(train_batch, evaluate, full_dataset=evaluation == "evaluate_full_dataset")


def _user_drives(
    trial: PyTorchTrial, context: PyTorchTrialContext, evaluate: Callable[..., Any]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    wrapped: dict[str, Sequence[Any]] = {"wrap_model": context.models, "wrap_optimizer": context.optimizers}
    if _overrides(trial, "create_lr_scheduler"):
        wrapped["wrap_lr_scheduler"] = context.lr_schedulers
    missing = [f"context.{name}()" for name, objects in wrapped.items() if not objects]
    if missing:
        defined = [f"{name}()" for name in _FIRST_STYLE if _overrides(trial, name)]
        also = f"; {' and '.join(defined)} would be used if train_batch() took `model`" if defined else ""
        raise InvalidTrial(
            f"{_name(trial)}: train_batch() takes no `model`, so __init__ must call {' and '.join(missing)}{also}"
        )
    return trial.train_batch, evaluate


def _framework_drives(
    callbacks: PyTorchCallbackList, trial: PyTorchTrial, context: PyTorchTrialContext, evaluate: Callable[..., Any]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    missing = [f"{name}()" for name in ("build_model", "optimizer") if not _overrides(trial, name)]
    if missing:
        raise InvalidTrial(
            f"{_name(trial)}: train_batch() takes `model`, so the trial must define {' and '.join(missing)}"
        )
    if context.models or context.optimizers or context._loop.wrapped_scaler:
        raise InvalidTrial(
            f"{_name(trial)} mixes two styles: train_batch() takes `model`, but __init__ wraps models, optimizers or a "
            "scaler; remove the wrap calls, or remove `model` and call context.backward() and context.step_optimizer()"
        )
    model = context.wrap_model(trial.build_model())
    optimizer = context.wrap_optimizer(trial.optimizer(model))
    scheduler = trial.create_lr_scheduler(optimizer)
    if scheduler is not None:
        if not isinstance(scheduler, LRScheduler):
            raise InvalidTrial(
                f"create_lr_scheduler() returned {scheduler!r}; expected a det_torch.LRScheduler or None"
            )
        context.lr_schedulers.append(scheduler)
    clip = _clipper(context.get_hparams(), callbacks)

    def train_batch(batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        returned = trial.train_batch(batch, model, epoch_idx, batch_idx)
        loss = returned.get("loss") if isinstance(returned, dict) else returned
        if not (isinstance(loss, torch.Tensor) and loss.requires_grad):
            raise no_loss(returned, "a loss that requires grad, or a dict that has it under 'loss'")
        context.backward(loss)
        context.step_optimizer(optimizer, clip)
        return returned

    return train_batch, lambda data, index: evaluate(data, index, model)


def _with_index(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper that passes ``batch_idx`` if the method has that parameter."""
    if "batch_idx" in inspect.signature(method).parameters:
        return lambda data, index, *model: method(data, *model, batch_idx=index)
    return lambda data, index, *model: method(data, *model)


def _clipper(hparams: Mapping[str, Any], callbacks: PyTorchCallbackList) -> ClipGrads | None:
    clip = _clipper_of_hparams(hparams)
    if not callbacks.has(_BEFORE_STEP):
        return clip

    def clip_grads(parameters: Iterator[torch.nn.Parameter]) -> None:
        given = list(parameters)  # for several callbacks
        if clip:
            clip(iter(given))
        callbacks.call(_BEFORE_STEP, given)

    return clip_grads


def _clipper_of_hparams(hparams: Mapping[str, Any]) -> ClipGrads | None:
    given = [name for name in _CLIPPERS if hparams.get(name) is not None]
    if len(given) > 1:
        raise InvalidTrial(f"the hyperparameters {' and '.join(given)} exclude each other; keep one of them")
    if not given:
        return None
    function, argument = _CLIPPERS[given[0]]
    return partial(function, **{argument: hparams[given[0]]})


def _evaluation(trial: PyTorchTrial) -> str:
    overridden = [name for name in _EVALUATIONS if _overrides(trial, name)]
    if len(overridden) == 1:
        return overridden[0]
    found = "both" if overridden else "neither"
    raise InvalidTrial(
        f"{_name(trial)} defines {found} of evaluate_batch() and evaluate_full_dataset(); define one of them"
    )


def takes_model(trial: PyTorchTrial, method: str) -> bool:
    """Return whether a method has the parameter ``model``, as in the style in which the framework drives."""
    return "model" in inspect.signature(getattr(trial, method)).parameters


def _overrides(trial: PyTorchTrial, method: str) -> bool:
    return getattr(type(trial), method) is not getattr(PyTorchTrial, method)


def _name(trial: PyTorchTrial) -> str:
    return type(trial).__name__
