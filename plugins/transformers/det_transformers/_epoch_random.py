"""Random numbers at the start of an epoch, from which samplers draw its order and data workers get their seeds.

The ``Trainer`` saves the state of the generators after the last step only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from det_core.trial.random_generators import get_generator_states, set_generator_states


def capture() -> dict[str, Any]:
    """Return the state of the generators of Python, NumPy and torch on the CPU, JSON-compatible."""
    return {**get_generator_states(), "torch": torch.get_rng_state().tolist()}


def restore(state: Mapping[str, Any]) -> None:
    """Restore the state that `capture` returned."""
    set_generator_states(state)
    torch.set_rng_state(torch.tensor(state["torch"], dtype=torch.uint8))


def write(state: Mapping[str, Any], directory: Path, rank: int) -> None:
    """Write the state of a rank into the directory of a checkpoint."""
    _file(directory, rank).write_text(json.dumps(state), encoding="utf-8")


def read(directory: Path, rank: int) -> dict[str, Any] | None:
    """Return the state of a rank, or None if the checkpoint has none, as one of another number of ranks."""
    file = _file(directory, rank)
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else None


def _file(directory: Path, rank: int) -> Path:
    return directory / f"epoch_random_{rank}.json"
