"""One engine of DeepSpeed, with an optimizer and the model that it trains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import deepspeed
import torch
from deepspeed.runtime.torch_autocast import autocast_if_enabled
from deepspeed.utils import (
    safe_get_full_fp32_param,
    safe_get_full_optimizer_state,
    safe_set_full_fp32_param,
    safe_set_full_optimizer_state,
    safe_set_local_fp32_param,
    safe_set_local_optimizer_state,
)

from det_core.errors import InvalidTrial
from det_deepspeed import _ds_config
from det_deepspeed._gradients import GRADIENTS_BY_STAGE, slot_piece

_COUNTS = ("global_steps", "global_samples", "micro_steps", "skipped_steps")


class ZeroEngine:
    """Engine of DeepSpeed, with access to the whole of its weights and states, which it shards over the slots.

    All slots must call all methods in the same order.

    Args:
        model: the model, on its device. Its weights are set to those of the chief.
        optimizer: an optimizer of the model's parameters. It is used unless the config has an optimizer.
        config: the complete config of the engine, from `complete_ds_config`.
    """

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, config: Mapping[str, Any]) -> None:
        self.stage = _ds_config.zero_stage(config)
        self.parameters = [weight for group in optimizer.param_groups for weight in group["params"]]
        """The optimizer's parameters, in the order of its state."""
        self._shapes = [weight.shape for weight in self.parameters]
        self.sizes = [len(group["params"]) for group in optimizer.param_groups]
        """The number of parameters in each group of the optimizer."""
        groups = [{"params": group["params"]} for group in optimizer.param_groups]
        own = bool(config.get("optimizer"))
        self.engine, *_ = deepspeed.initialize(
            model=model,
            optimizer=None if own else optimizer,
            model_parameters=groups if own else None,
            config=dict(config),
            dist_init_required=False,
        )
        self.optimizer: torch.optim.Optimizer = self.engine.basic_optimizer
        self._trained = [weight for weight in self.parameters if weight.requires_grad]
        self.gradients = GRADIENTS_BY_STAGE[self.stage](self.engine.optimizer, self._trained)
        if own:
            optimizer.param_groups = self.optimizer.param_groups  # so that the trial reads and sets these

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model's forward pass."""
        with autocast_if_enabled(self.engine):
            return self.engine.module(*args, **kwargs)

    @contextmanager
    def backward(self) -> Iterator[None]:
        """Return the context for a backward pass, which may or may not reach this model."""
        if self.stage == 0:
            yield
            return
        # This does what Engine.forward() and backward() do. They require one forward pass of only this engine per
        # backward pass, but a trial may call a model twice for a loss, and the losses in a GAN reach both models.
        engine, optimizer = self.engine, self.engine.optimizer
        optimizer.clear_backward_seen_flag()
        engine._running_engine_backward = True
        try:
            engine._backward_prologue()
            yield
            if optimizer._hooks_fired_this_backward:
                engine._backward_epilogue()
            else:
                optimizer.exit_backward()
        finally:
            engine._running_engine_backward = False

    @contextmanager
    def thawed(self) -> Iterator[None]:
        """Return the context for save and restore, which unfreezes parameters, because DeepSpeed skips frozen ones."""
        frozen = [weight for weight in self._trained if not weight.requires_grad]
        for weight in frozen:
            weight.requires_grad_(True)
        try:
            yield
        finally:
            for weight in frozen:
                weight.requires_grad_(False)

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Return a context in which each slot has all weights, because slots may call the model differently often."""
        if self.stage < 3:
            yield
            return
        offload = self.engine.optimizer.parameter_offload
        offload._remove_module_hooks()
        offload.forward_hooks.clear()
        offload.backward_hooks.clear()
        try:
            with deepspeed.zero.GatheredParameters(list(self.engine.module.parameters())):
                yield
        finally:
            offload.setup_zero_stage3_hooks()

    def step(self, divisor: int) -> None:
        """Step with the mean of the slots' gradients, divided by ``divisor``, and reset them."""
        if divisor > 1:
            self.gradients.divide(divisor)
        self.engine.step()

    def weight(self, parameter: torch.nn.Parameter) -> torch.Tensor:
        """Return the whole parameter, as float32 if it is trained."""
        if self.stage and self._trains(parameter):
            whole: torch.Tensor = safe_get_full_fp32_param(parameter)
            return whole
        with deepspeed.zero.GatheredParameters([parameter]):
            return parameter.detach().clone()

    def set_weight(self, parameter: torch.nn.Parameter, value: torch.Tensor) -> None:
        """Set a parameter to a value that `weight` returned."""
        value = value.to(parameter.device)
        with deepspeed.zero.GatheredParameters([parameter], modifier_rank=0), torch.no_grad():
            parameter.copy_(value)
        if self.stage and self._trains(parameter):
            if self.stage == 3:
                safe_set_local_fp32_param(parameter, slot_piece(parameter, value))
            else:
                safe_set_full_fp32_param(parameter, value)

    def states(self) -> Iterator[tuple[torch.Tensor, dict[str, Any]]]:
        """Yield each parameter and the whole state that the optimizer keeps for it."""
        if self.stage == 0:
            yield from ((weight, dict(state)) for weight, state in self.optimizer.state.items())
            return
        piece = self._pieces()[0]
        kept = self.optimizer.state.get(piece, {})
        whole = [key for key, value in kept.items() if _is_like(value, piece.shape)]
        for parameter in self._trained if kept else ():
            yield parameter, {**kept, **{key: safe_get_full_optimizer_state(parameter, key) for key in whole}}

    def set_states(self, states: Mapping[int, Mapping[str, Any]]) -> None:
        """Restore the result of `states`. The keys are indices in `parameters`."""
        if self.stage == 0:
            ours = self.optimizer.state_dict()
            self.optimizer.load_state_dict({**ours, "state": states})
            return
        self.optimizer.state.clear()
        if not states:
            return
        largest = max(states, key=lambda number: self._shapes[number].numel())
        kept = states[largest]
        whole = [key for key, value in kept.items() if _is_like(value, self._shapes[largest])]
        for piece in self._pieces():
            self.optimizer.state[piece] = {
                key: torch.zeros_like(piece) if key in whole else _copied(value) for key, value in kept.items()
            }
        if self.stage < 3:
            self.engine.optimizer._hp_optimizer_states_linked = False
            self.engine.optimizer._lazy_init_hp_params_optimizer_state()
        for number, state in states.items():
            for key in whole:
                self._set_state(self.parameters[number], key, state[key])

    def values(self) -> dict[str, Any]:
        """Return the remaining state of the engine, which contains no tensors."""
        engine = self.engine
        return {
            **{name: getattr(engine, name) for name in _COUNTS},
            "loss_scaler": _numbers(getattr(engine.optimizer, "loss_scaler", None)),
            "lr_scheduler": engine.lr_scheduler.state_dict() if engine.lr_scheduler else None,
        }

    def set_values(self, saved: Mapping[str, Any]) -> None:
        """Restore the result of `values`."""
        for name in _COUNTS:
            setattr(self.engine, name, saved[name])
        if scaler := getattr(self.engine.optimizer, "loss_scaler", None):
            vars(scaler).update(saved["loss_scaler"])
        if self.engine.lr_scheduler and saved["lr_scheduler"]:
            self.engine.lr_scheduler.load_state_dict(saved["lr_scheduler"])

    def _trains(self, parameter: torch.nn.Parameter) -> bool:
        return any(parameter is weight for weight in self._trained)

    def _pieces(self) -> list[torch.Tensor]:
        """Return this slot's part of each parameter group, for which the optimizer keeps a state."""
        if self.stage == 3:
            pieces: list[torch.Tensor] = self.engine.optimizer.fp32_partitioned_groups_flat
            return pieces
        return [group["params"][0] for group in self.optimizer.param_groups]

    def _set_state(self, parameter: torch.nn.Parameter, key: str, value: torch.Tensor) -> None:
        value = value.to(parameter.device)
        if self.stage == 3:
            safe_set_local_optimizer_state(parameter, slot_piece(parameter, value), key)
        else:
            safe_set_full_optimizer_state(parameter, value, key)


def _is_like(value: Any, shape: torch.Size) -> bool:
    """Return whether a state has the shape of its parameter, and not one value for all elements.

    Raises:
        InvalidTrial: it has another shape.
    """
    if not isinstance(value, torch.Tensor) or value.ndim == 0 or value.numel() == 1 < shape.numel():
        return False
    if value.shape != shape:
        raise InvalidTrial(
            f"the optimizer keeps a tensor of shape {tuple(value.shape)} for a parameter of shape {tuple(shape)}, "
            "which ZeRO cannot shard; set zero_optimization: {stage: 0} in ds_config, or use another optimizer"
        )
    return True


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _numbers(scaler: Any) -> dict[str, Any]:
    return {} if scaler is None else {k: v for k, v in vars(scaler).items() if isinstance(v, (bool, int, float))}
