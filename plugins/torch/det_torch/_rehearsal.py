"""State of a `PyTorchTrial` that a rehearsal restores in place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch.nn.parameter import is_lazy
from torch.utils.data import DataLoader

from det_torch._batch_order import iterate_samplers
from det_torch._checkpoints._training_state import kept_groups, saved_tensors
from det_torch._context import PyTorchTrialContext
from det_torch._optimizer_steps import optimizer_parameters


def has_lazy_parameters(context: PyTorchTrialContext) -> bool:
    """Return whether a forward pass will create parameters, for which it draws random numbers."""
    return any(map(is_lazy, _tensors(context)))


def count_state_bytes(context: PyTorchTrialContext) -> int:
    """Return the size of all models in bytes, over all slots. Tensors in several places count once."""
    return sum(tensor.nbytes for tensor in {id(tensor): tensor for tensor in _tensors(context)}.values())


@contextmanager
def restored_state(context: PyTorchTrialContext, validation: Any, copy: Callable[[Any], Any]) -> Iterator[None]:
    """Restore the state of the wrapped objects, and of the loader and its dataset, where the block has changed it.

    Objects whose state has not changed are left alone, because some replace parts of themselves when they load.

    Args:
        context: context of the trial.
        validation: loader that the block reads.
        copy: returns a copy of a state on the CPU.
    """
    owners = list(_owners(context, validation))
    states = copy([owner.state_dict() for owner in owners])
    try:
        yield
    finally:
        with kept_groups(context.optimizers):
            for owner, state in zip(owners, states, strict=True):
                if not _same(owner.state_dict(), state):
                    owner.load_state_dict(state)


class _Tensors:
    """Tensors that no other object loads in place. Of sharded ones, the part of this slot."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        self._tensors = list(tensors)

    def state_dict(self) -> list[torch.Tensor]:
        with torch.no_grad():
            return [tensor.to_local() if hasattr(tensor, "to_local") else tensor for tensor in self._tensors]

    def load_state_dict(self, state: list[torch.Tensor]) -> None:
        for tensor, value in zip(self.state_dict(), state, strict=True):
            tensor.data.copy_(value)


class _Gradients:
    def __init__(self, parameters: Iterable[torch.Tensor]) -> None:
        self._parameters = list(parameters)

    def state_dict(self) -> list[torch.Tensor | None]:
        return [parameter.grad for parameter in self._parameters]

    def load_state_dict(self, state: list[torch.Tensor | None]) -> None:
        for parameter, gradient in zip(self._parameters, state, strict=True):
            parameter.grad = None if gradient is None else gradient.to(parameter.device)


class _Generator:
    def __init__(self, generator: torch.Generator) -> None:
        self.state_dict, self.load_state_dict = generator.get_state, generator.set_state


def _owners(context: PyTorchTrialContext, validation: Any) -> Iterator[Any]:
    of_models = {parameter for model in context._loop.bare_models for parameter in model.parameters()}
    of_optimizers = chain.from_iterable(map(optimizer_parameters, context.optimizers))
    loose = [parameter for parameter in of_optimizers if parameter not in of_models]
    if context.backend.sharded:
        yield _Tensors(_tensors(context))
    else:
        yield from context._loop.bare_models
        yield from context.optimizers
        yield _Tensors(loose)
    yield _Gradients([*of_models, *loose])
    yield from context.lr_schedulers
    if context.scaler:
        yield context.scaler
    dataset: Any = getattr(validation, "dataset", None)
    has_state = hasattr(dataset, "state_dict") and hasattr(dataset, "load_state_dict")
    if has_state and dataset.state_dict() is not None:  # some have none before they are read
        yield dataset
    if isinstance(validation, DataLoader):
        for part in (validation, *iterate_samplers(validation)):
            if isinstance(generator := getattr(part, "generator", None), torch.Generator):
                yield _Generator(generator)


def _tensors(context: PyTorchTrialContext) -> Iterator[torch.Tensor]:
    return (tensor for model in context._loop.bare_models for _, tensor in saved_tensors(model))


def _same(now: Any, before: Any) -> bool:
    if isinstance(now, torch.Tensor):
        alike = isinstance(before, torch.Tensor) and now.dtype == before.dtype
        return alike and torch.equal(now, before.to(now.device))
    if isinstance(now, np.ndarray):
        return np.array_equal(now, before)
    if isinstance(now, Mapping):
        return now.keys() == before.keys() and all(_same(value, before[key]) for key, value in now.items())
    if isinstance(now, (list, tuple)):
        return len(now) == len(before) and all(map(_same, now, before))
    return bool(now is before or now == before)
