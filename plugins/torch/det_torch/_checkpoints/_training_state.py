"""Training state of a trial in the files of a checkpoint."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.serialization import (
    get_crc32_options,
    get_safe_globals,
    get_unsafe_globals_in_checkpoint,
    set_crc32_options,
)

from det_core.errors import InvalidTrial
from det_torch._checkpoints._file_names import STATE_FILE
from det_torch._checkpoints._old_layouts import check_count
from det_torch._checkpoints._staging import wraps_tensors
from det_torch._checkpoints._tensor_files import check_tensors, save_safetensors
from det_torch._compiled import uncompiled_models
from det_torch._context import PyTorchTrialContext
from det_torch._optimizer_steps import optimizer_parameters
from det_torch._random import rng_state

_LOOSE_PARAMETERS = "optimizers_parameters"
"""Key of the parameters of optimizers that no wrapped model has."""

_log = logging.getLogger("det.torch")


def collect_training_state(context: PyTorchTrialContext) -> dict[str, Any]:
    """Return the state of all wrapped objects that is the same on every slot. Tensors are not copied."""
    state: dict[str, Any] = {
        "lr_schedulers_state_dict": [scheduler.state_dict() for scheduler in context.lr_schedulers]
    }
    if not context.backend.sharded:
        with uncompiled_models(context._loop.bare_models) as models:
            state["models_state_dict"] = [model.state_dict() for model in models]
        state["optimizers_state_dict"] = [optimizer.state_dict() for optimizer in context.optimizers]
        if loose := _loose_parameters(context):
            state[_LOOSE_PARAMETERS] = loose
    if context.scaler:
        state["scaler_state_dict"] = context.scaler.state_dict()
    return state


def collect_slot_state(context: PyTorchTrialContext) -> dict[str, Any]:
    """Return the state that differs between slots. Tensors are not copied."""
    if context.backend.sharded:
        return {"rng_state": rng_state()}
    with uncompiled_models(context._loop.bare_models) as models:
        # Gradients exist only between the batches of an aggregation, or where the trial zeroes them itself.
        named: list[Mapping[str, torch.Tensor]] = [dict(model.named_parameters()) for model in models]
    return {"gradients": list(map(_gradients, [*named, *_loose_parameters(context)])), "rng_state": rng_state()}


def saved_tensors(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the parameters and persistent buffers of a model, by name."""
    yield from model.named_parameters()
    for place, module in model.named_modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and name not in module._non_persistent_buffers_set:
                yield f"{place}.{name}" if place else name, buffer


def check_tensor_classes(context: PyTorchTrialContext) -> None:
    """Check that the tensors of all models can be loaded again.

    Raises:
        InvalidTrial: a tensor wraps others, and its class is not among those that torch loads safely.
    """
    if context.backend.sharded:  # slots hold parts, which are written as plain tensors
        return
    safe = {entry[0] if isinstance(entry, tuple) else entry for entry in get_safe_globals()}
    with uncompiled_models(context._loop.bare_models) as models:
        for number, model in enumerate(models):
            for name, tensor in saved_tensors(model):
                kind = type(tensor)
                if wraps_tensors(tensor) and kind not in safe:
                    raise InvalidTrial(
                        f"models[{number}].{name} is a {kind.__module__}.{kind.__qualname__}, which does not load "
                        "safely from a checkpoint; if you trust this class, call "
                        f"torch.serialization.add_safe_globals([{kind.__qualname__}]) in the module of the trial"
                    )


def write_training_state(state: dict[str, Any], path: Path, *, safetensors: bool = False) -> None:
    """Write a state to a checkpoint's directory.

    Args:
        state: the state to write.
        path: the directory.
        safetensors: whether to write the weights of each model to a separate safetensors file.

    Raises:
        InvalidTrial: part of the state has a type that ``torch.load(weights_only=True)`` would refuse.
    """
    if safetensors and "models_state_dict" in state:
        for number, weights in enumerate(state.pop("models_state_dict")):
            _write_safetensors(weights, path / f"model_{number}.safetensors")
    contextvars.copy_context().run(_save, state, path / STATE_FILE)
    if refused := get_unsafe_globals_in_checkpoint(str(path / STATE_FILE)):
        raise InvalidTrial(
            f"a state_dict() of the trial holds {', '.join(refused)}, which cannot be loaded again safely; "
            "return only tensors, numbers, strings, lists and dicts"
        )


def restore_training_state(context: PyTorchTrialContext, state: Mapping[str, Any], path: Path) -> None:
    """Restore everything except the random number generators.

    Args:
        context: context whose wrapped objects are restored.
        state: state from the checkpoint.
        path: the checkpoint's directory.

    Raises:
        InvalidTrial: the state does not fit the wrapped objects.
    """
    _restore_training(context, state, path, continues=True)
    check_count("LR schedulers", context.lr_schedulers, state["lr_schedulers_state_dict"])
    for scheduler, saved in zip(context.lr_schedulers, state["lr_schedulers_state_dict"], strict=True):
        scheduler.load_state_dict(saved)
    if context.scaler and state.get("scaler_state_dict"):
        context.scaler.load_state_dict(state["scaler_state_dict"])


def restore_warm_start(context: PyTorchTrialContext, state: Mapping[str, Any], path: Path) -> None:
    """Restore the weights of another trial. Optimizers and everything else begin anew.

    Args:
        context: context whose wrapped objects are restored.
        state: state from the checkpoint.
        path: the checkpoint's directory.

    Raises:
        InvalidTrial: the state does not fit the wrapped objects.
    """
    _restore_training(context, state, path, continues=False)


def restore_models(context: PyTorchTrialContext, state: Mapping[str, Any]) -> None:
    """Restore only the weights of the models.

    Raises:
        InvalidTrial: the number of models differs from that in the state.
    """
    check_count("models", context.models, state["models_state_dict"])
    with uncompiled_models(context._loop.bare_models) as models:
        for model, saved in zip(models, state["models_state_dict"], strict=True):
            model.load_state_dict(saved)


def restore_models_and_optimizers(context: PyTorchTrialContext, state: Mapping[str, Any], *, continues: bool) -> None:
    """Restore models, and optimizers and gradients if the same trial continues.

    Args:
        context: context whose wrapped objects are restored.
        state: state from the checkpoint.
        continues: whether the state is from the same trial. Otherwise only weights are restored.

    Raises:
        InvalidTrial: the state does not fit the wrapped objects.
    """
    restore_models(context, state)
    if continues:
        _restore_optimizers(context.optimizers, state["optimizers_state_dict"])
    loose = _loose_parameters(context)
    _restore_loose_parameters(loose, state.get(_LOOSE_PARAMETERS, ()))
    if continues:
        _restore_gradients(context, loose, state.get("gradients", ()))  # old checkpoints have no gradients


@contextmanager
def kept_groups(optimizers: Sequence[torch.optim.Optimizer]) -> Iterator[None]:
    """Keep the dictionaries of parameter groups, to which a trial may hold references, when the block loads states."""
    before = [optimizer.param_groups[:] for optimizer in optimizers]
    yield
    for optimizer, groups in zip(optimizers, before, strict=True):
        for group, loaded in zip(groups, map(dict, optimizer.param_groups), strict=True):
            group.clear()
            group.update(loaded)
        optimizer.param_groups[:] = groups


def _restore_training(context: PyTorchTrialContext, state: Mapping[str, Any], path: Path, *, continues: bool) -> None:
    with kept_groups(context.optimizers):
        if context.backend.sharded:
            context.backend.restore(path, state, continues=continues)
        else:
            restore_models_and_optimizers(context, state, continues=continues)


def _gradients(named: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: parameter.grad for name, parameter in named.items() if parameter.grad is not None}


def _loose_parameters(context: PyTorchTrialContext) -> list[dict[str, torch.Tensor]]:
    """Return, for each optimizer, the parameters by number that no wrapped model has. Empty if no optimizer has any."""
    if context.backend.sharded:  # sharded backends hold only parts of parameters
        return []
    of_models = {parameter for model in context._loop.bare_models for parameter in model.parameters()}
    loose: list[dict[str, torch.Tensor]] = [
        {
            str(number): parameter
            for number, parameter in enumerate(optimizer_parameters(optimizer))
            if parameter not in of_models
        }
        for optimizer in context.optimizers
    ]
    return loose if any(loose) else []


def _restore_optimizers(optimizers: Sequence[torch.optim.Optimizer], saved: Sequence[Any]) -> None:
    check_count("optimizers", optimizers, saved)
    for optimizer, state in zip(optimizers, saved, strict=True):
        _load(optimizer, state)


def _restore_gradients(
    context: PyTorchTrialContext,
    loose: Sequence[Mapping[str, torch.Tensor]],
    saved: Sequence[Mapping[str, torch.Tensor]],
) -> None:
    with uncompiled_models(context._loop.bare_models) as models:
        named: list[Mapping[str, torch.Tensor]] = [dict(model.named_parameters()) for model in models]
    for own, gradients in zip([*named, *loose], saved, strict=False):
        for name, parameter in own.items():
            gradient = gradients.get(name)
            parameter.grad = None if gradient is None else gradient.to(parameter.device)


def _load(optimizer: torch.optim.Optimizer, state: Any) -> None:
    # Some optimizers have states without param_groups.
    both = state.get("param_groups", optimizer.param_groups), optimizer.param_groups
    sizes = [[len(group["params"]) for group in groups] for groups in both]
    if sizes[0] != sizes[1]:
        raise InvalidTrial(
            f"the checkpoint has groups of {sizes[0]} parameters for {type(optimizer).__name__}, but the trial has "
            f"{sizes[1]}; if groups were added during training, add them again in a callback's "
            "on_checkpoint_load_start(checkpoint), where checkpoint['optimizers_state_dict'] describes them"
        )
    optimizer.load_state_dict(state)
    _undo_rounding(optimizer, state.get("state", {}))


def _undo_rounding(optimizer: torch.optim.Optimizer, saved: Mapping[int, Any]) -> None:
    """Restore optimizer state that torch rounded to the weights' type, such as float32 averages of bfloat16 weights."""
    for number, parameter in enumerate(optimizer_parameters(optimizer)):
        kept, own = saved.get(number), optimizer.state.get(parameter)
        if isinstance(kept, Mapping) and isinstance(own, dict):
            for name, value in kept.items():
                now = own.get(name)
                if isinstance(value, torch.Tensor) and isinstance(now, torch.Tensor) and now.dtype != value.dtype:
                    own[name] = value.to(now.device)


def _restore_loose_parameters(
    loose: Sequence[Mapping[str, torch.Tensor]], saved: Sequence[Mapping[str, torch.Tensor]]
) -> None:
    if loose and not saved:
        _log.warning(
            "the checkpoint lacks parameters of optimizers that no wrapped model has; they keep their initial values"
        )
        return
    shapes, expected = ([{name: one.shape for name, one in of.items()} for of in all_] for all_ in (saved, loose))
    if shapes != expected:
        raise InvalidTrial(
            f"the checkpoint has, for each optimizer, parameters outside of wrapped models with the shapes {shapes}, "
            f"but the trial has {expected}; continue with the code that saved the checkpoint"
        )
    for own, values in zip(loose, saved, strict=True):
        for name, parameter in own.items():
            parameter.data.copy_(values[name])


def _save(state: Mapping[str, Any], file: Path) -> None:
    # Most of torch.save's time is its checksum, which is not needed because the checkpoint has a checksum of the whole
    # file. torch keeps this option in a context variable, so other files keep their checksums. It is restored for torch
    # releases that kept it per process.
    before = get_crc32_options()
    set_crc32_options(False)
    try:
        torch.save(state, file)
    finally:
        set_crc32_options(before)


def _write_safetensors(weights: Mapping[str, Any], file: Path) -> None:
    remedy = "remove `safetensors = True`"
    seen: set[int] = set()
    tensors = {}
    for name, value in check_tensors(weights, remedy).items():
        # The format does not support shared memory, so tied weights are written twice.
        tensors[name] = value.clone() if value.data_ptr() in seen else value.contiguous()
        seen.add(value.data_ptr())
    try:
        save_safetensors(tensors, file, remedy)
    except ModuleNotFoundError as error:
        from det_core.package_commands import package_command

        raise InvalidTrial(
            f"`safetensors = True` needs a package that is not installed: {package_command('install', 'safetensors')}"
        ) from error
