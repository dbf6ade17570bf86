"""Access to the gradients that DeepSpeed keeps between two steps of an optimizer, at every stage of ZeRO."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from deepspeed.utils import safe_get_full_grad, safe_get_local_grad, safe_set_local_grad

GradientMapping: TypeAlias = Mapping[torch.nn.Parameter, torch.Tensor]


class ZeroGradients(ABC):
    """Base class for the aggregated gradients of one engine. All slots must call all methods in the same order.

    Args:
        optimizer: the engine's optimizer, which wraps the one that steps.
        parameters: the parameters that it trains.
    """

    def __init__(self, optimizer: Any, parameters: Sequence[torch.nn.Parameter]) -> None:
        self._optimizer, self._parameters = optimizer, parameters

    @abstractmethod
    def means(self) -> Iterator[tuple[torch.nn.Parameter, torch.Tensor]]:
        """Yield each parameter and its gradients since the last step, averaged over the slots.

        Nothing is yielded right after a step.
        """

    @abstractmethod
    def put(self, gradients: GradientMapping) -> None:
        """Set the aggregated gradients. These are means over the slots, or the result of `own` on this slot."""

    @abstractmethod
    def divide(self, divisor: int) -> None:
        """Divide the aggregated gradients."""

    def own(self) -> dict[torch.nn.Parameter, torch.Tensor]:
        """Return this slot's gradients, if slots do not exchange any before a step. Otherwise, return nothing."""
        return {}


class WholeGradients(ZeroGradients):
    """Gradients at stages 0 and 1. Each slot has its own gradients of all parameters."""

    def means(self) -> Iterator[tuple[torch.nn.Parameter, torch.Tensor]]:
        yield from ((parameter, mean_over_slots(gradient)) for parameter, gradient in self.own().items())

    def put(self, gradients: GradientMapping) -> None:
        for parameter, gradient in gradients.items():
            parameter.grad = gradient.to(parameter)

    def divide(self, divisor: int) -> None:
        _divide(self.own().values(), divisor)

    def own(self) -> dict[torch.nn.Parameter, torch.Tensor]:
        return {weight: weight.grad for weight in self._parameters if weight.grad is not None}


class PartitionedGradients(ZeroGradients):
    """Gradients at stage 2. Each slot has averages for some parameters, of which the first and last may be partial."""

    def means(self) -> Iterator[tuple[torch.nn.Parameter, torch.Tensor]]:
        if all(kept is None for kept in self._optimizer.all_grad_tensors.values()):
            return
        here = self._here()
        for parameter in self._parameters:
            alone = _whole_with_own(parameter, here.get(parameter))
            dist.all_reduce(alone)
            yield parameter, alone

    def put(self, gradients: GradientMapping) -> None:
        for number, group in enumerate(self._optimizer.params_in_partition if gradients else ()):
            self._optimizer.all_grad_tensors[number] = [
                gradients[weight].to(weight) if weight in gradients else torch.zeros_like(weight) for weight in group
            ]

    def divide(self, divisor: int) -> None:
        _divide(self._here().values(), divisor)

    def _here(self) -> dict[torch.nn.Parameter, torch.Tensor]:
        kept = self._optimizer.all_grad_tensors
        return {
            weight: gradient
            for number, group in enumerate(self._optimizer.params_in_partition)
            for weight, gradient in zip(group, kept.get(number) or (), strict=False)
        }


class ShardedGradients(ZeroGradients):
    """Gradients at stage 3. Each slot has a piece of every parameter's average."""

    def means(self) -> Iterator[tuple[torch.nn.Parameter, torch.Tensor]]:
        if self._optimizer.micro_step_id or self._optimizer._epilogue_ran_this_backward:
            yield from ((parameter, safe_get_full_grad(parameter)) for parameter in self._parameters)

    def put(self, gradients: GradientMapping) -> None:
        for parameter, gradient in gradients.items():
            safe_set_local_grad(parameter, slot_piece(parameter, gradient.to(parameter.device)))
        self._optimizer.micro_step_id = int(bool(gradients))  # whether later gradients are added to these

    def divide(self, divisor: int) -> None:
        for parameter in self._parameters:
            safe_set_local_grad(parameter, safe_get_local_grad(parameter) / divisor)


GRADIENTS_BY_STAGE: dict[int, type[ZeroGradients]] = {
    0: WholeGradients,
    1: WholeGradients,
    2: PartitionedGradients,
    3: ShardedGradients,
}


def mean_over_slots(tensor: torch.Tensor) -> torch.Tensor:
    """Return the mean of a tensor over the slots, the same on all slots."""
    mean = tensor / dist.get_world_size()
    dist.all_reduce(mean)
    return mean


def slot_piece(parameter: Any, value: torch.Tensor) -> torch.Tensor:
    """Return this slot's piece of a tensor with the shape of the parameter, at stage 3. The last piece is padded."""
    size = parameter.ds_tensor.numel()
    piece = torch.zeros(size, dtype=value.dtype, device=value.device)
    own = value.flatten()[dist.get_rank() * size :][:size]
    piece[: own.numel()] = own
    return piece


def _divide(gradients: Collection[torch.Tensor], divisor: int) -> None:
    if gradients:
        torch._foreach_div_(list(gradients), divisor)


def _whole_with_own(parameter: Any, gradient: torch.Tensor | None) -> torch.Tensor:
    """Return a gradient where this slot has it, and zeros elsewhere, at stage 2."""
    alone = torch.zeros_like(parameter, requires_grad=False)
    if gradient is not None:
        address = parameter._hp_mapping.lp_fragment_address
        own = slice(address.start, address.start + address.numel)
        alone.view(-1)[own] = gradient.reshape(-1)[own]
    return alone
