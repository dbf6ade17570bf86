"""Forward passes of sharded models, whose number may differ between slots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule

from det_core.core import DistributedContext
from det_core.errors import CommError, InvalidTrial, RankFailed

_TAG = "det_torch_distributed.gathers"
_FINISHED, _FAILED = -1, -2


class IndependentPasses:
    """Agreement of the slots on which unit they gather next.

    All slots must take part in gathering the parameters of a unit. A slot that needs a unit announces it first. Slots
    that need another unit, or have finished, gather that unit too and drop it again.

    Args:
        slots: all slots of the trial.
    """

    def __init__(self, slots: DistributedContext) -> None:
        self._slots = slots
        self._roots: list[FSDPModule] = []
        self._units: list[FSDPModule] = []
        self._whole: set[FSDPModule] = set()
        """Units that this slot needs now."""
        self._running = False
        self._keeps = False
        """Whether this slot keeps all units whole until the end."""

    def add(self, root: FSDPModule, inner: Iterable[FSDPModule]) -> None:
        """Add a model and the units below it.

        Args:
            root: unit of the model itself.
            inner: all other units of the model.
        """
        before, after = map(torch.compiler.disable, (self._before, self._after))
        self._roots.append(root)
        for unit in (root, *inner):
            assert isinstance(unit, nn.Module)
            self._units.append(unit)
            unit.register_forward_pre_hook(before, prepend=True)  # FSDP's own hook then finds the unit whole
            unit.register_forward_hook(after)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run a block in which each slot may call models any number of times. The block ends on all slots together.

        Raises:
            RankFailed: the block of another slot has failed.
        """
        self._drop_all()
        self._running = True
        try:
            yield
            self._gather_until(_FINISHED)
        except (CommError, RankFailed):
            raise  # the other slots already know of the failure
        except BaseException:
            self._announce(_FAILED)
            raise
        finally:
            self._running = self._keeps = False
            self._drop_all()
            for root in self._roots:
                root.set_reshard_after_forward(False, recurse=False)  # as FSDP has it by default

    def _drop_all(self) -> None:
        self._whole.clear()
        for unit in self._units:
            _let_drop(unit, True)
            unit.reshard()

    def _before(self, unit: Any, _: Any) -> None:
        if not self._running:
            return
        # A backward pass would gather missing units without an announcement, so all units must be whole before.
        differentiates = torch.is_grad_enabled()
        for needed in self._units if differentiates else [unit]:
            if needed not in self._whole:
                self._gather_until(self._units.index(needed))
                self._whole.add(needed)
        if differentiates and not self._keeps:
            self._keeps = True
            for kept in self._units:
                _let_drop(kept, False)

    def _after(self, unit: Any, _: Any, __: Any) -> None:
        if self._running and not self._keeps:
            self._whole.discard(unit)
            torch.clear_autocast_cache()  # otherwise the cache grows to the size of all weights

    def _gather_until(self, own: int) -> None:
        """Gather one announced unit after the other, until this slot's unit is gathered or all slots have finished.

        Args:
            own: index of the unit that this slot needs, or ``_FINISHED``.

        Raises:
            RankFailed: another slot has failed, and this slot has not finished.
        """
        while True:
            announced = self._announce(own)
            if _FAILED in announced:
                if own == _FINISHED:  # the next collective of all slots reports the failure
                    return
                raise RankFailed(f"rank {announced.index(_FAILED)} failed during the validation")
            needed = [number for number in announced if number != _FINISHED]
            if not needed:
                return
            number = min(needed)
            unit = self._units[number]
            unit.reshard()  # each slot must take part, even a slot whose unit is whole
            with torch.inference_mode(False):  # training uses the same tensors
                unit.unshard()
            if number == own:
                return
            if unit not in self._whole:
                unit.reshard()

    def _announce(self, own: int) -> list[int]:
        announced = self._slots.allgather((_TAG, own))
        for rank, one in enumerate(announced):
            if not (isinstance(one, tuple) and one[:1] == (_TAG,)):
                raise InvalidTrial(
                    f"rank {rank} called a collective of its own in the trial's evaluation, while rank "
                    f"{self._slots.rank} called a model; with `sharding: fsdp` all slots must call models equally "
                    "often between such collectives"
                )
        return [number for _, number in announced]


def _let_drop(unit: FSDPModule, drops: bool) -> None:
    """Choose whether FSDP drops the whole unit after its passes."""
    unit.set_reshard_after_forward(drops, recurse=False)
    unit.set_reshard_after_backward(drops, recurse=False)
