"""The global random number generators of Python and NumPy, and seeds for any others; for frameworks."""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

State = TypeVar("State")


def derive_seed(*parts: int | str) -> int:
    """A seed, 0 <= seed < 2**63, that depends on all the parts and on nothing else."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def seed_all(seed: int) -> None:
    """Seed Python's, and NumPy's if it has been imported."""
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed % 2**32)


def rng_state() -> dict[str, Any]:
    """The state of both, in types that JSON has."""
    version, words, gauss = random.getstate()
    state: dict[str, Any] = {"random": [version, list(words), gauss]}
    if numpy := sys.modules.get("numpy"):
        name, keys, *rest = numpy.random.get_state(legacy=True)
        state["np"] = [str(name), keys.tolist(), *rest]
    return state


def set_rng_state(state: Mapping[str, Any]) -> None:
    """Put back what `rng_state` returned."""
    version, words, gauss = state["random"]
    random.setstate((version, tuple(words), gauss))
    if (numpy := sys.modules.get("numpy")) and "np" in state:
        name, keys, *rest = state["np"]
        numpy.random.set_state((name, numpy.asarray(keys, numpy.uint32), *rest))


def forking(
    take: Callable[[], State], seed_all: Callable[[int], None], put: Callable[[State], None]
) -> Callable[[int], AbstractContextManager[None]]:
    """``forked(seed)`` for generators whose state is taken, seeded and put back so."""

    @contextmanager
    def forked(seed: int) -> Iterator[None]:
        state = take()
        seed_all(seed)
        try:
            yield
        finally:
            put(state)

    return forked


forked = forking(rng_state, seed_all, set_rng_state)
"""Run a block on generators of its own, seeded so; the global ones do not notice."""
