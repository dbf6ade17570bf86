"""Global random number generators of Python and NumPy, and seeds for other generators. For use by frameworks."""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

_State = TypeVar("_State")
"""Type of the state of a set of generators."""


def derive_seed(*parts: int | str) -> int:
    """Return a seed, 0 <= seed < 2**63, that depends only on the given parts."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def seed_generators(seed: int) -> None:
    """Seed the generators of Python and, if it has been imported, of NumPy."""
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed % 2**32)


def get_generator_states() -> dict[str, Any]:
    """Return the state of both generators, JSON-compatible."""
    version, words, gauss = random.getstate()
    state: dict[str, Any] = {"random": [version, list(words), gauss]}
    if numpy := sys.modules.get("numpy"):
        name, keys, *rest = numpy.random.get_state(legacy=True)
        state["np"] = [str(name), keys.tolist(), *rest]
    return state


def set_generator_states(state: Mapping[str, Any]) -> None:
    """Restore the state that `get_generator_states` returned."""
    version, words, gauss = state["random"]
    random.setstate((version, tuple(words), gauss))
    if (numpy := sys.modules.get("numpy")) and "np" in state:
        name, keys, *rest = state["np"]
        numpy.random.set_state((name, numpy.asarray(keys, numpy.uint32), *rest))


def make_forked_context(
    take: Callable[[], _State], seed_all: Callable[[int], None], put: Callable[[_State], None]
) -> Callable[[int], AbstractContextManager[None]]:
    """Return a context manager ``forked(seed)`` for other generators.

    Args:
        take: returns the state of the generators.
        seed_all: seeds them.
        put: restores a state.
    """

    @contextmanager
    def forked(seed: int) -> Iterator[None]:
        state = take()
        seed_all(seed)
        try:
            yield
        finally:
            put(state)

    return forked


forked_generators = make_forked_context(get_generator_states, seed_generators, set_generator_states)
"""Run the block with seeded global generators, and restore their state afterwards."""
