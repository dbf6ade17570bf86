"""Compliance suite for frameworks, with plain functions and with a model of Flax NNX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flax", reason="JAX is in an environment of its own, with which make test-jax runs these tests")

from det_jax._state import read_checkpoint, write_checkpoint
from det_testing.framework import FrameworkCompliance

from .tiny_trials import Functions, Objects

pytestmark = [pytest.mark.integration, pytest.mark.slow]


class _Compliance(FrameworkCompliance):
    plugin = "det_jax.plugin"

    def weights(self, path: Path) -> Any:
        arrays, _ = read_checkpoint(path)
        return {name: array for name, array in arrays.items() if is_weight(name)}

    def replace_weights(self, path: Path, source: Path) -> None:
        arrays, state = read_checkpoint(path)
        write_checkpoint({**arrays, **self.weights(source)}, state, path)


def is_weight(name: str) -> bool:
    return name.startswith("weights/") and "/rngs/" not in name


class TestFunctions(_Compliance):
    trial_class = Functions


class TestObjects(_Compliance):
    trial_class = Objects
