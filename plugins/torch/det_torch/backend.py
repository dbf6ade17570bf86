"""Interface of the adapters of distributed backends to `PyTorchTrial`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, cast

import torch

from det_core.core import DistributedContext
from det_core.launch import backends
from det_core.plugins import plugin_registry
from det_core.trial import TrialContext

_NOTHING = nullcontext()


class TorchBackend:
    """Adapter that makes the slots of a trial train as one. This base class trains on one slot.

    ``BackendSpec.adapters["pytorch"]`` names a subclass, or a function that returns an instance of one. On every slot
    it is called as ``adapter(context, options)`` before the trial is constructed. The methods are called in this
    order::

        ( wrap_model | wrap_optimizer )*  ready  restore?  begin
        ( batch( backward* step* )  |  share_buffers  ( evaluation | save )? )*  close

    All slots make the same calls, except for `close`. det itself distributes the data and combines the metrics of the
    slots. Unless the adapter is `sharded`, only the chief writes checkpoints, and det restores them on every slot.
    """

    sharded = False
    """Whether models and optimizers are spread over the slots.

    If true, `save` writes their part of checkpoints, gradients included, on every slot, and `restore` restores them.
    `det_torch.sharding` has functions for both.
    """

    def wrap_model(self, model: torch.nn.Module) -> torch.nn.Module:
        """Return the model that the trial calls.

        Args:
            model: model on ``context.device``. Checkpoints hold the state of this model.
        """
        return model

    def wrap_optimizer(self, optimizer: torch.optim.Optimizer, *, fp16_compression: bool) -> torch.optim.Optimizer:
        """Return the optimizer that the trial steps.

        Args:
            optimizer: optimizer of parameters of wrapped models.
            fp16_compression: whether gradients of its parameters may be exchanged as float16, because the trial or
                ``optimizations.gradient_compression`` in the config requests it.
        """
        return optimizer

    def ready(self) -> None:
        """Complete the setup after everything is wrapped. Next, the checkpoint is restored if there is one."""

    def restore(self, path: Path, state: Mapping[str, Any], *, continues: bool) -> None:
        """Restore models, and optimizers if the same trial continues, from a checkpoint of any number of slots.

        Called only if `sharded`.

        Args:
            path: the checkpoint's directory. It has the files that `save` wrote on all slots, unless the adapter that
                wrote the checkpoint was not `sharded`.
            state: the rest of the saved state. It includes ``models_state_dict`` and ``optimizers_state_dict`` if the
                adapter that wrote the checkpoint was not `sharded`.
            continues: whether the same trial continues. Otherwise only the weights are restored, and optimizers begin
                anew.
        """
        raise NotImplementedError(f"{type(self).__name__} is sharded and must override restore()")

    def save(self, path: Path) -> None:
        """Write this slot's part of models, optimizers and gradients. Called only if `sharded`.

        Args:
            path: directory of this slot. A checkpoint has the files of all slots, so their names must differ.
        """
        raise NotImplementedError(f"{type(self).__name__} is sharded and must override save()")

    def begin(self) -> None:
        """Copy the weights and buffers of the chief to all slots.

        Called after a checkpoint was restored, immediately before training.
        """

    def batch(self, *, updates: bool) -> AbstractContextManager[Any]:
        """Return the context manager around each ``train_batch``.

        Args:
            updates: whether optimizers step in this batch. If not, only the gradients of this slot must be accumulated.
        """
        return _NOTHING

    def backward(self, loss: torch.Tensor, run: Callable[[], Any]) -> None:
        """Add the gradients of a loss.

        Args:
            loss: loss of this slot.
            run: runs the backward pass. It scales the loss for mixed precision if det does so.
        """
        run()

    def step(self, optimizer: torch.optim.Optimizer, run: Callable[[], Any], *, clips: bool) -> None:
        """Step an optimizer. Gradients must be combined over all slots before ``run()``.

        Args:
            optimizer: optimizer to step.
            run: divides and clips the gradients and steps.
            clips: whether the trial clips gradients in this step. An adapter that does not support this raises
                an error.
        """
        run()

    def share_buffers(self) -> None:
        """Copy the buffers of the chief, such as running means, to all slots, before a validation or a checkpoint."""

    def evaluation(self) -> AbstractContextManager[Any]:
        """Return the context manager around the evaluation of batches. Gradients are off unless the trial enables them.

        In the block the number of model calls may differ between slots, or only the chief calls models. All slots
        enter the block, so its end may wait until all have finished. Slots exchange their metrics after the block.
        """
        return _NOTHING

    def close(self) -> None:
        """Release resources after training has ended or failed. Other slots may have ended already."""


def make_torch_backend(context: TrialContext) -> TorchBackend:
    """Return the adapter of the backend that started this process.

    Raises the errors of `det_core.launch.backends.make_adapter`.
    """
    return cast("TorchBackend", backends.make_adapter("pytorch", context, TorchBackend))


def join_script_workers(distributed: DistributedContext | None) -> DistributedContext | None:
    """Return the workers that a script trains with, checked before any worker waits for another.

    Args:
        distributed: argument of the script, or None.

    Returns:
        ``distributed`` if given, else the workers that ``python -m det_core.launch`` started. None if this process is
        the only worker.

    Raises:
        ValueError: there are several workers but no backend is chosen.
    """
    if distributed is None and backends.BACKEND_VARIABLE in os.environ and backends.CHIEF_VARIABLE in os.environ:
        return backends.connect_workers()
    if distributed is None and os.environ.get("WORLD_SIZE", "1") != "1":
        raise ValueError(
            f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, so this script has other workers, but init() was "
            "called without distributed=; pass core.DistributedContext.from_torch_distributed() and set DET_BACKEND to "
            f"a backend's name, or {_how_to_start()}"
        )
    if distributed is not None and distributed.size > 1 and backends.BACKEND_VARIABLE not in os.environ:
        raise ValueError(
            f"distributed has {distributed.size} workers, but without a distributed backend det_torch trains on one "
            f"slot; set DET_BACKEND to a backend's name, or {_how_to_start()}"
        )
    return distributed


def _how_to_start() -> str:
    """Return the instruction to start a script with several workers."""
    from det_core.package_commands import package_command  # a process without errors needs nothing of it

    known = ", ".join(plugin_registry().names("backend"))
    installed = known or f"none; to install one: {package_command('install', 'det-torch-distributed')}"
    return f"start it with: python -m det_core.launch BACKEND --slots 2 -- train.py (installed backends: {installed})"
