"""The plugin passes det's compliance suite.

To run it, type ``pip install 'det-core[testing]'``, then ``pytest test_descent.py``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from det_descent import DescentTrial
from det_testing.framework import FrameworkCompliance, reach_point


class Line(DescentTrial):
    """Linear regression with noise."""

    def build(self, random: Random) -> tuple[list[float], Sequence[int], Sequence[int]]:
        return [random.random(), 0.0], range(18), range(4)

    def gradient(self, weights: list[float], batch: Sequence[int], random: Random) -> tuple[list[float], Any]:
        reach_point("training")
        errors = [self.error(weights, record) + random.gauss(0, 0.1) for record in batch]
        slope = sum(error * record / 18 for error, record in zip(errors, batch, strict=True))
        return [slope, sum(errors)], {"loss": sum(error**2 for error in errors), "records": list(batch)}

    def evaluate(self, weights: list[float], record: int, random: Random) -> float:
        reach_point("validation")
        return abs(self.error(weights, record) + random.gauss(0, 0.1))

    def error(self, weights: list[float], record: int) -> float:
        return weights[0] * record / 18 + weights[1] - record


class TestDescent(FrameworkCompliance):
    plugin = "det_descent"
    trial_class = Line
    hyperparameters: ClassVar = {"global_batch_size": 4, "learning_rate": 0.01}

    def weights(self, path: Path) -> Any:
        return json.loads((path / "descent.json").read_text())["weights"]

    def replace_weights(self, path: Path, source: Path) -> None:
        file = path / "descent.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "weights": self.weights(source)}))
