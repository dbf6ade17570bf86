"""State of a trial that changes during training although checkpoints do not include it."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from det_torch._batch_order import iterate_samplers
from det_torch._callback import PyTorchCallbackList
from det_torch._checkpoints._slot_state import tensor_digest
from det_torch._checkpoints._staging import wraps_tensors
from det_torch._checkpoints._training_state import saved_tensors
from det_torch._compiled import uncompiled_models
from det_torch._context import PyTorchTrialContext
from det_torch._optimizer_steps import optimizer_parameters
from det_torch._trial import PyTorchTrial

_Fingerprint: TypeAlias = tuple[Any, Any]
"""Kind of a value and its content. Only fingerprints of the same kind can be compared."""

_MOST_HASHED = 1 << 20
"""Number of elements up to which the content of a tensor is compared. Of larger ones, only the version is."""
_OF_ALL_MODULES = frozenset(vars(nn.Module()))
_NUMBERS = (bool, int, float, complex)
_GENERATORS: dict[type, Callable[[Any], Any]] = {
    torch.Generator: lambda generator: generator.get_state().numpy().tobytes(),
    np.random.Generator: lambda generator: repr(generator.bit_generator.state),
    np.random.RandomState: lambda generator: repr(generator.get_state()),
    random.Random: lambda generator: generator.getstate(),
}
_MOST_NAMED = 8

_log = logging.getLogger("det.torch")


class LeftOutState:
    """Fingerprints of the state that checkpoints leave out, taken while training begins.

    It consists of buffers that are not persistent and of the tensors, numbers and generators among the attributes of
    modules, and of the generators of the trial and its training data. Modules that define what their ``state_dict``
    holds are left to their authors.

    Args:
        context: context of the trial, with all wrapped models.
        owners: objects whose generators count, by name.
        excepted: generators that det itself seeds.
    """

    def __init__(self, context: PyTorchTrialContext, owners: Mapping[str, Any], excepted: Iterable[Any]) -> None:
        self._context = context
        self._owners = owners
        self._excepted = list(excepted)
        self._noted: dict[str, _Fingerprint] = {}

    def note_values(self) -> None:
        """Note numbers and generators. To be called before the first batch."""
        self._noted.update(self._values())

    def note_tensors(self) -> None:
        """Note tensors. To be called after the first batch, in which many modules compute tables that stay."""
        self._noted.update(self._tensors())

    def warn_of_changes(self) -> None:
        """Name all values that have changed since they were noted."""
        if not (changed := self._changed()):
            return
        if more := changed[_MOST_NAMED:]:
            changed = [*changed[:_MOST_NAMED], f"{len(more)} more"]
        _log.warning(
            "checkpoints leave out %s, which changed during training, so a resumed training begins with other values. "
            "If it depends on them, make tensors persistent buffers (register_buffer), return other values from "
            "get_extra_state() of the module (with set_extra_state()), and states of generators from state_dict() of "
            "a callback (with load_state_dict())",
            ", ".join(changed),
        )

    def _changed(self) -> list[str]:
        now = dict(chain(self._values(), self._tensors()))
        noted = {name: self._noted[name] for name in now if name in self._noted}
        return [name for name, (kind, content) in noted.items() if now[name][0] == kind and now[name][1] != content]

    def _values(self) -> Iterator[tuple[str, _Fingerprint]]:
        for name, value in self._attributes():
            if type(value) in _NUMBERS and not self._context.backend.sharded:  # DeepSpeed counts in attributes
                yield name, (type(value), repr(value))
            elif type(value) in _GENERATORS and not any(value is one for one in self._excepted):
                yield name, (type(value), _GENERATORS[type(value)](value))

    def _tensors(self) -> Iterator[tuple[str, _Fingerprint]]:
        of_models = (tensor for model in self._context._loop.bare_models for _, tensor in saved_tensors(model))
        of_optimizers = chain.from_iterable(map(optimizer_parameters, self._context.optimizers))
        saved = set(map(_memory, filter(_is_plain, chain(of_models, of_optimizers))))
        for name, value in self._attributes():
            if _is_plain(value) and _memory(value) not in saved:
                if value.numel() <= _MOST_HASHED:
                    yield name, ((value.shape, value.dtype), tensor_digest(value))
                elif self._context.distributed.size == 1:  # several slots exchange buffers, which counts as a change
                    yield name, ((value.shape, value.dtype), (id(value), value._version))

    def _attributes(self) -> Iterator[tuple[str, Any]]:
        with uncompiled_models(self._context._loop.bare_models) as models:
            for number, model in enumerate(models):
                yield from _module_attributes(f"models[{number}]", model)
        for owner, thing in self._owners.items():
            for name, value in getattr(thing, "__dict__", {}).items():
                if type(value) in _GENERATORS:
                    yield f"{owner}.{name}", value


def watch_left_out_state(
    context: PyTorchTrialContext, trial: PyTorchTrial, callbacks: PyTorchCallbackList, loaders: Sequence[Any]
) -> LeftOutState | None:
    """Return the left-out state of a trial, or None if a callback may save anything.

    Args:
        context: context of the trial, with all wrapped models.
        trial: the trial. Its generators do not count if a callback has a state, which may contain theirs.
        callbacks: callbacks of the trial.
        loaders: training loader and validation loader.
    """
    if callbacks.has("on_checkpoint_save_start"):
        return None
    dataset = getattr(loaders[0], "dataset", None)
    owners: dict[str, Any] = {} if callbacks.have_state() else {"trial": trial}
    if not hasattr(dataset, "state_dict"):
        owners["dataset"] = dataset
    seeded = [
        getattr(part, "generator", None)
        for loader in loaders
        if isinstance(loader, DataLoader)
        for part in (loader, *iterate_samplers(loader))
    ]
    return LeftOutState(context, owners, seeded)


def _module_attributes(place: str, module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield the buffers and attributes of a module and its children that no ``state_dict`` holds, by their places."""
    if _defines_its_state(module):
        return
    hooks = module._forward_pre_hooks.values()
    derived = {getattr(hook, "name", getattr(hook, "_tensor_name", None)) for hook in hooks}
    for name in module._non_persistent_buffers_set:
        yield f"{place}.{name}", module._buffers.get(name)
    for name, value in vars(module).items():
        if name not in _OF_ALL_MODULES and name not in derived:  # such as the weight that weight_norm computes
            yield f"{place}.{name}", value
    for name, child in module.named_children():
        yield from _module_attributes(f"{place}.{name}", child)


def _defines_its_state(module: nn.Module) -> bool:
    kind = type(module)
    overridden = any(
        getattr(kind, method) is not getattr(nn.Module, method)
        for method in ("get_extra_state", "state_dict", "_save_to_state_dict")
    )
    return overridden or bool(module._state_dict_hooks or module._state_dict_pre_hooks)


def _is_plain(value: Any) -> bool:
    """Return whether a value is a tensor in memory of its own that was not computed with gradients."""
    return (
        isinstance(value, torch.Tensor)
        and value.layout is torch.strided
        and value.device.type != "meta"
        and value.numel() > 0
        and not (wraps_tensors(value) or value.is_quantized or value.is_inference() or value.grad_fn is not None)
    )


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
