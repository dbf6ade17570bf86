"""The global random number generators of Python, numpy and torch, taken together."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def derive_seed(*parts: int | str) -> int:
    """A seed, 0 <= seed < 2**63, that depends on all the parts and on nothing else."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def seed_all(seed: int) -> None:
    """Seed every global generator."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def rng_state() -> dict[str, Any]:
    """The state of every global generator, in types that ``torch.load(weights_only=True)`` accepts."""
    version, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached_gauss = np.random.get_state(legacy=True)
    state = {
        "random": [version, list(words), gauss],
        "np": [str(name), torch.from_numpy(np.asarray(keys, np.int64)), position, has_gauss, cached_gauss],
        "cpu": torch.get_rng_state(),
    }
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["gpu"] = torch.cuda.get_rng_state()
    return state


def set_rng_state(state: Mapping[str, Any]) -> None:
    """Put back what `rng_state` returned."""
    version, words, gauss = state["random"]
    random.setstate((version, tuple(words), gauss))
    name, keys, *rest = state["np"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state["cpu"])
    if "gpu" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["gpu"])


@contextmanager
def forked(seed: int) -> Iterator[None]:
    """Run a block on generators of its own, seeded so; the global ones do not notice."""
    state = rng_state()
    seed_all(seed)
    try:
        yield
    finally:
        set_rng_state(state)
