"""Combined state of the global random number generators of Python, numpy and torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from det_core.trial import random_generators


def seed_all(seed: int) -> None:
    """Seed every global generator."""
    random_generators.seed_generators(seed)
    torch.manual_seed(seed)


def rng_state() -> dict[str, Any]:
    """Return the state of every global generator, in types that ``torch.load(weights_only=True)`` accepts."""
    state = {**random_generators.get_generator_states(), "cpu": torch.get_rng_state()}
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["gpu"] = torch.cuda.get_rng_state()
        if others := _other_gpus():
            state["other_gpus"] = [torch.cuda.get_rng_state(gpu) for gpu in others]
    return state


def set_rng_state(state: Mapping[str, Any]) -> None:
    """Restore the state of every global generator.

    Args:
        state: return value of `rng_state`.
    """
    random_generators.set_generator_states(state)
    torch.set_rng_state(state["cpu"])
    if "gpu" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["gpu"])
        for gpu, own in zip(_other_gpus(), state.get("other_gpus", ()), strict=False):
            torch.cuda.set_rng_state(own, gpu)


def _other_gpus() -> list[int]:
    """Return the indices of the other visible GPUs, in cyclic order after the current one.

    The order is relative because a resumed process may train on another GPU.
    """
    own, count = torch.cuda.current_device(), torch.cuda.device_count()
    return [(own + step) % count for step in range(1, count)]


forked = random_generators.make_forked_context(rng_state, seed_all, set_rng_state)
"""Context manager that seeds the global generators for a block and restores their state afterwards."""
