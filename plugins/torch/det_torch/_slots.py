"""What differs from slot to slot: seeds, and parts of checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest
from typing import Any

import torch

from det_core.core import DistributedContext
from det_core.trial.generators import derive_seed
from det_torch._random import seed_all

SLOTS = "slots"
"""In a checkpoint's state: the parts of all slots but the chief's, whose part is the state itself."""

_log = logging.getLogger("det.torch")
_NOTHING = object()


def seed_slot(distributed: DistributedContext, seed: int, batch: int) -> None:
    """Seed the global generators of one of several slots, each for itself, so that no two drop out the same units.

    Args:
        seed: the trial's.
        batch: that training begins with.
    """
    if distributed.size > 1:
        seed_all(derive_seed(seed, "slot", distributed.rank, batch))


def own_state(state: Mapping[str, Any], distributed: DistributedContext) -> Mapping[str, Any]:
    """A checkpoint's state as this slot continues from it.

    On another number of slots everybody gets the mean of the gradients that were saved amid a window of aggregation; of
    the rest the chief's part is everybody's, except for its random numbers, and a stream of data is read again from the
    trial's begin, since its place was counted in batches of another size.
    """
    others: Sequence[Mapping[str, Any]] = state.get(SLOTS, ())
    saved, rank = len(others) + 1, distributed.rank
    if saved == distributed.size:
        return {**state, **others[rank - 1]} if rank else state
    if rank == 0:
        _log.info("the checkpoint is of %d slots and continues on %d", saved, distributed.size)
    gradients = _means([part["gradients"] for part in (state, *others) if "gradients" in part])
    return {**state, "gradients": gradients, "data": None, "rng_state": None if rank else state.get("rng_state")}


def _means(of_slots: Sequence[Sequence[Mapping[str, torch.Tensor]]]) -> list[dict[str, torch.Tensor]]:
    """Of each model's gradients; a slot without one had none to add."""
    means = []
    for of_model in zip(*of_slots, strict=True):
        names = dict.fromkeys(chain.from_iterable(of_model))
        means.append({name: sum(own[name] for own in of_model if name in own) / len(of_slots) for name in names})
    return means


def in_turn(of_slots: Sequence[Sequence[Any]]) -> list[Any]:
    """The batches' rows in the order of one slot: the first of every slot, then the second of every slot."""
    rows = chain.from_iterable(zip_longest(*of_slots, fillvalue=_NOTHING))
    return [row for row in rows if row is not _NOTHING]
