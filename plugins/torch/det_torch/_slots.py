"""What differs from slot to slot: seeds, and parts of checkpoints."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from itertools import chain, zip_longest
from typing import Any

import torch

from det_core.core import DistributedContext
from det_core.trial.generators import derive_seed
from det_torch._packing import map_leaves, pack
from det_torch._random import seed_all
from det_torch._staging import identity

SLOTS = "slots"
"""In a checkpoint's state: the parts of all slots but the chief's, whose part is the state itself."""

_log = logging.getLogger("det.torch")
_NOTHING = object()


class _Mark(Enum):
    """What slots send instead of a tensor."""

    AS_CHIEF = auto()


def seed_slot(distributed: DistributedContext, seed: int, batch: int) -> None:
    """Seed the global generators of one of several slots, each for itself, so that no two drop out the same units.

    Args:
        seed: the trial's.
        batch: that training begins with.
    """
    if distributed.size > 1:
        seed_all(derive_seed(seed, "slot", distributed.rank, batch))


def gather_parts(
    own: Mapping[str, Any], distributed: DistributedContext, copy: Callable[[Any], Any]
) -> list[Any] | None:
    """Return on the chief the parts of all other slots, in order of rank, and None on these.

    A tensor that equals the chief's in the same place is not sent: the part has the chief's own, so that a file holds
    it once.

    Args:
        own: this slot's part.
        copy: copies what is sent to the CPU.
    """
    if distributed.size == 1:
        return []
    own = pack(own, "checkpoint")
    tensors, is_chief = _tensors(own), distributed.rank == 0
    of_chief = {places: _digest(tensor) for places, tensor in tensors.items()} if is_chief else {}
    of_chief = distributed.broadcast(of_chief)
    if not is_chief:
        alike = {places for places in tensors.keys() & of_chief if _digest(tensors[places]) == of_chief[places]}
        left_out = set(chain.from_iterable(alike))
        distributed.gather(copy(map_leaves(own, lambda leaf, at: _Mark.AS_CHIEF if at in left_out else leaf)))
        return None
    gathered = distributed.gather(None) or []
    chiefs = {place: tensor for places, tensor in tensors.items() for place in places}
    return [map_leaves(part, lambda leaf, at: chiefs[at] if leaf is _Mark.AS_CHIEF else leaf) for part in gathered[1:]]


def _tensors(state: Any) -> dict[tuple[Any, ...], torch.Tensor]:
    """All places of a tensor -> the tensor. Places that share one are kept together, so that they share one again."""
    found: dict[Any, tuple[torch.Tensor, list[Any]]] = {}

    def note(leaf: Any, place: Any) -> Any:
        plain = type(leaf) in (torch.Tensor, torch.nn.Parameter) and leaf.layout is torch.strided
        if plain and leaf.numel() and not leaf.is_quantized:
            found.setdefault(identity(leaf), (leaf, []))[1].append(place)
        return leaf

    map_leaves(state, note)
    return {tuple(places): tensor for tensor, places in found.values()}


def _digest(tensor: torch.Tensor) -> bytes:
    digest = hashlib.blake2b(repr((tensor.dtype, tensor.shape, tensor.stride())).encode(), digest_size=16)
    values = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    digest.update(values.view(torch.uint8).numpy().data)
    return digest.digest()


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
