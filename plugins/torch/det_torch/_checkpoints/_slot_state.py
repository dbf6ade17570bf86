"""State of a trial that differs between slots, namely seeds and parts of checkpoints."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from itertools import chain, zip_longest
from typing import Any

import torch

from det_core.core import DistributedContext
from det_core.trial.random_generators import derive_seed
from det_torch._checkpoints._packing import map_leaves, pack_state
from det_torch._checkpoints._staging import tensor_identity
from det_torch._random import seed_all

SLOT_PARTS = "slots"
"""Key in a checkpoint's state for the parts of all slots except the chief, whose part is the state itself."""

_log = logging.getLogger("det.torch")
_NOTHING = object()


class _Mark(Enum):
    """Placeholder that slots send instead of a tensor."""

    AS_CHIEF = auto()


def seed_slot(distributed: DistributedContext, seed: int, batch: int) -> None:
    """Seed the global generators of this slot if there are several, so that no two slots drop out the same units.

    Args:
        distributed: this slot among the slots of the trial.
        seed: the trial's seed.
        batch: number of the batch that training begins with.
    """
    if distributed.size > 1:
        seed_all(derive_seed(seed, "slot", distributed.rank, batch))


def gather_slot_parts(
    own: Mapping[str, Any], distributed: DistributedContext, copy: Callable[[Any], Any]
) -> list[Any] | None:
    """Return the parts of all other slots in order of rank on the chief, and None on the other slots.

    A tensor that equals the chief's tensor in the same place is not sent. The part refers to the chief's tensor
    instead, so that a file holds it once.

    Args:
        own: this slot's part.
        distributed: this slot among the slots of the trial.
        copy: returns a copy of a state on the CPU, for sending.

    Raises:
        InvalidTrial: the part has a value of a type that checkpoints do not support.
    """
    if distributed.size == 1:
        return []
    own = pack_state(own, "checkpoint")
    tensors, is_chief = _tensors(own), distributed.rank == 0
    of_chief = {places: tensor_digest(tensor) for places, tensor in tensors.items()} if is_chief else {}
    of_chief = distributed.broadcast(of_chief)
    if not is_chief:
        alike = {places for places in tensors.keys() & of_chief if tensor_digest(tensors[places]) == of_chief[places]}
        left_out = set(chain.from_iterable(alike))
        distributed.gather(copy(map_leaves(own, lambda leaf, at: _Mark.AS_CHIEF if at in left_out else leaf)))
        return None
    gathered = distributed.gather(None) or []
    chiefs = {place: tensor for places, tensor in tensors.items() for place in places}
    return [map_leaves(part, lambda leaf, at: chiefs[at] if leaf is _Mark.AS_CHIEF else leaf) for part in gathered[1:]]


def _tensors(state: Any) -> dict[tuple[Any, ...], torch.Tensor]:
    """Return all strided tensors by their places. Places with the same tensor form one key, so that it stays shared."""
    found: dict[Any, tuple[torch.Tensor, list[Any]]] = {}

    def note(leaf: Any, place: Any) -> Any:
        plain = type(leaf) in (torch.Tensor, torch.nn.Parameter) and leaf.layout is torch.strided
        if plain and leaf.numel() and not leaf.is_quantized:
            found.setdefault(tensor_identity(leaf), (leaf, []))[1].append(place)
        return leaf

    map_leaves(state, note)
    return {tuple(places): tensor for tensor, places in found.values()}


def tensor_digest(tensor: torch.Tensor) -> bytes:
    digest = hashlib.blake2b(repr((tensor.dtype, tensor.shape, tensor.stride())).encode(), digest_size=16)
    values = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    digest.update(values.view(torch.uint8).numpy().data)
    return digest.digest()


def select_slot_state(state: Mapping[str, Any], distributed: DistributedContext) -> Mapping[str, Any]:
    """Return a checkpoint's state as this slot continues from it.

    On the same number of slots each slot gets its own part. On another number all slots get the chief's part with these
    exceptions. Gradients that were saved during a window of aggregation are replaced by their mean over the slots. The
    random state is kept by the chief only. A stream of data is read again from the beginning of the trial, because its
    position was counted in batches of another size.

    Args:
        state: state of the checkpoint.
        distributed: this slot among the slots of the trial.
    """
    others: Sequence[Mapping[str, Any]] = state.get(SLOT_PARTS, ())
    saved, rank = len(others) + 1, distributed.rank
    if saved == distributed.size:
        return {**state, **others[rank - 1]} if rank else state
    if rank == 0:
        _log.info("the checkpoint was saved on %d slots and continues on %d", saved, distributed.size)
    gradients = _means([part["gradients"] for part in (state, *others) if "gradients" in part])
    return {**state, "gradients": gradients, "data": None, "rng_state": None if rank else state.get("rng_state")}


def _means(of_slots: Sequence[Sequence[Mapping[str, torch.Tensor]]]) -> list[dict[str, torch.Tensor]]:
    """Return the means of each model's gradients over the slots. A missing gradient counts as zero."""
    means = []
    for of_model in zip(*of_slots, strict=True):
        names = dict.fromkeys(chain.from_iterable(of_model))
        means.append({name: sum(own[name] for own in of_model if name in own) / len(of_slots) for name in names})
    return means


def interleave_rows(of_slots: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the rows of all slots in the order of training on one slot.

    The order is the first row of every slot, then the second row of every slot, and so on.

    Args:
        of_slots: rows of each slot, by rank.
    """
    rows = chain.from_iterable(zip_longest(*of_slots, fillvalue=_NOTHING))
    return [row for row in rows if row is not _NOTHING]
