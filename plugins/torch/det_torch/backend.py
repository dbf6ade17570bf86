"""What a distributed backend does to the training of a `PyTorchTrial`: the contract of its adapters."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from det_core.core import DistributedContext
from det_core.launch import backends
from det_core.plugins import registry

if TYPE_CHECKING:
    from det_torch._context import PyTorchTrialContext

_NOTHING = nullcontext()


class TorchBackend:
    """How the slots of a trial train as one. As it is, for one slot; adapters override what differs for theirs.

    An adapter is what ``BackendSpec.adapters["pytorch"]`` names: a subclass. On every slot it is constructed as
    ``adapter(context, options)`` before the trial is, and called in this order::

        ( wrap_model | wrap_optimizer )*  ready  restore?  begin
        ( batch( backward* step* )  |  share_buffers  ( evaluation | save )? )*  close

    All slots call all methods alike, except for `close`. det by itself shares out the data, puts the metrics of slots
    together, lets the chief alone write checkpoints, and restores them on every slot; unless the adapter is `sharded`.
    """

    sharded = False
    """Whether models and optimizers are spread over the slots. Their part of checkpoints, gradients included, is then
    what `save` writes on every slot, and they are restored by `restore`."""

    def wrap_model(self, model: torch.nn.Module) -> torch.nn.Module:
        """The model that the trial will call; ``model`` is on ``context.device``, and remains what checkpoints hold."""
        return model

    def wrap_optimizer(self, optimizer: torch.optim.Optimizer, *, fp16_compression: bool) -> torch.optim.Optimizer:
        """The optimizer that the trial will step.

        Args:
            fp16_compression: whether gradients of its parameters may be exchanged as float16, by the trial's wish or
                the config's ``optimizations.gradient_compression``.
        """
        return optimizer

    def ready(self) -> None:
        """All is wrapped. Checkpoints are restored next, if there is one."""

    def restore(self, path: Path, state: Mapping[str, Any], *, continues: bool) -> None:
        """Restore models and optimizers, if `sharded`, from a checkpoint of any number of slots.

        Args:
            path: its directory, with what `save` wrote on all slots, or without, if it was not `sharded`.
            state: what else was saved; with ``models_state_dict`` and ``optimizers_state_dict`` if it was not.
            continues: whether the same trial goes on; else the optimizers keep the learning rates and other options
                that they have, and take over their states only.
        """
        raise NotImplementedError(f"{type(self).__name__} is sharded and must override restore()")

    def save(self, path: Path) -> None:
        """Write this slot's part of models, optimizers and gradients, if `sharded`, into a directory of its own.

        Checkpoints have the files of all slots, so their names must differ.
        """
        raise NotImplementedError(f"{type(self).__name__} is sharded and must override save()")

    def begin(self) -> None:
        """Make weights and buffers those of the chief. Checkpoints are restored by now, and training begins."""

    def batch(self, *, updates: bool) -> AbstractContextManager[Any]:
        """What each ``train_batch`` runs in.

        Args:
            updates: whether optimizers step in it; if not, gradients of this slot alone are to add up.
        """
        return _NOTHING

    def backward(self, loss: torch.Tensor, run: Callable[[], Any]) -> None:
        """Add the gradients of ``loss``, by ``run()``, which scales it for mixed precision if det does that."""
        run()

    def step(self, optimizer: torch.optim.Optimizer, run: Callable[[], Any], *, clips: bool) -> None:
        """Step, by ``run()``: it divides the gradients, clips them and steps, so they must be those of all slots.

        Args:
            clips: whether the trial clips gradients in it; an adapter that cannot run that refuses it.
        """
        run()

    def share_buffers(self) -> None:
        """Make buffers those of the chief, such as running means: a validation or a checkpoint follows."""

    def evaluation(self) -> AbstractContextManager[Any]:
        """Return what the evaluation of batches runs in, without gradients unless the trial asks for them.

        Slots may call models different numbers of times in it, or only the chief does. All slots enter it, so its end
        may wait until all have finished; slots exchange their metrics only afterwards.
        """
        return _NOTHING

    def close(self) -> None:
        """Training has ended, well or not; other slots may be gone."""


def backend_of(context: PyTorchTrialContext) -> TorchBackend:
    """The adapter of the backend that started this process. Raises as `det_core.launch.backends.adapt`."""
    return cast("TorchBackend", backends.adapt("pytorch", context, TorchBackend))


def meet(distributed: DistributedContext | None) -> DistributedContext | None:
    """The workers that a script trains with, checked before any of them waits for another.

    Args:
        distributed: as the script gave it.

    Returns:
        The same; without one, those that ``python -m det_core.launch`` started. None: this process is alone.

    Raises:
        ValueError: there are several, and no backend is chosen.
    """
    if distributed is None and backends.NAME in os.environ and backends.CHIEF in os.environ:
        return backends.meet()
    installed = ", ".join(registry().names("backend")) or "none; for one: pip install det-torch-distributed"
    remedy = f"start it with: python -m det_core.launch BACKEND --slots 2 -- train.py (installed backends: {installed})"
    if distributed is None and os.environ.get("WORLD_SIZE", "1") != "1":
        raise ValueError(
            f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, so this script has other workers, but init() got no "
            "distributed=; pass core.DistributedContext.from_torch_distributed() and set DET_BACKEND to a backend's "
            f"name, or {remedy}"
        )
    if distributed is not None and distributed.size > 1 and backends.NAME not in os.environ:
        raise ValueError(
            f"distributed has {distributed.size} workers, but without a distributed backend det_torch trains on one "
            f"slot; set DET_BACKEND to a backend's name, or {remedy}"
        )
    return distributed
