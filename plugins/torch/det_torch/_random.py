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
        if others := _other_gpus():
            state["other_gpus"] = [torch.cuda.get_rng_state(gpu) for gpu in others]
    return state


def set_rng_state(state: Mapping[str, Any]) -> None:
    """Put back what `rng_state` returned."""
    generators.set_rng_state(state)
    torch.set_rng_state(state["cpu"])
    if "gpu" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["gpu"])
        for gpu, own in zip(_other_gpus(), state.get("other_gpus", ()), strict=False):
            torch.cuda.set_rng_state(own, gpu)


def _other_gpus() -> list[int]:
    """Return the GPUs that this process sees beside its own, counted on from that one, which may be another later."""
    own, count = torch.cuda.current_device(), torch.cuda.device_count()
    return [(own + step) % count for step in range(1, count)]


forked = generators.forking(rng_state, seed_all, set_rng_state)
"""Run a block on generators of its own, seeded so; the global ones do not notice."""
