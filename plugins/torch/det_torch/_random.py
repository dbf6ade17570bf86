"""The global random number generators of Python, numpy and torch, taken together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from det_core.trial import generators


def seed_all(seed: int) -> None:
    """Seed every global generator."""
    generators.seed_all(seed)
    torch.manual_seed(seed)


def rng_state() -> dict[str, Any]:
    """The state of every global generator, in types that ``torch.load(weights_only=True)`` accepts."""
    state = {**generators.rng_state(), "cpu": torch.get_rng_state()}
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["gpu"] = torch.cuda.get_rng_state()
    return state


def set_rng_state(state: Mapping[str, Any]) -> None:
    """Put back what `rng_state` returned."""
    generators.set_rng_state(state)
    torch.set_rng_state(state["cpu"])
    if "gpu" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["gpu"])


forked = generators.forking(rng_state, seed_all, set_rng_state)
"""Run a block on generators of its own, seeded so; the global ones do not notice."""
