"""A framework, a stranger's, in one file: it trains a number. The tests of runner and loop run on it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import det_core
from det_core.interfaces.framework import Metrics, TrialAdapter
from det_core.specs import FrameworkSpec


@det_core.hookimpl
def det_frameworks() -> Iterator[FrameworkSpec]:
    yield FrameworkSpec(
        name="toy",
        target="det_toy:run_trial",
        load="det_toy:load",
        old_names=("OldToy", "brittle"),
        needs_adapter=False,  # trials themselves exchange their weights
        prepare=("det_toy",),
        elastic=True,
    )


@det_core.hookimpl
def det_choose_framework(mro: Sequence[str]) -> str | None:
    return "toy" if "det_toy.ToyTrial" in mro else None


class ToyTrial(det_core.Trial):
    """Moves ``weight`` by a random step each batch; override `on_batch` and `evaluate` to misbehave."""

    def __init__(self, context: det_core.TrialContext) -> None:
        self.context = context
        self.weight = 0.0
        self.batch = 0

    def on_batch(self, batch: int) -> None:
        """Called before each batch."""

    def on_write(self, size: int) -> None:
        """Called when a checkpoint's file is written, in the thread that writes it."""

    def evaluate(self) -> dict[str, Any]:
        return {"validation_loss": abs(self.weight - 1)}


class ToyAdapter(TrialAdapter):
    batches_per_epoch = 10
    records_per_batch = 4
    writes_behind = True

    def __init__(self, trial: ToyTrial) -> None:
        self.trial = trial
        self.random = random.Random(trial.context.get_trial_seed())

    def train(self, batches: int, stop: Callable[[], bool]) -> list[Metrics]:
        metrics: list[Metrics] = []
        while len(metrics) < batches:
            self.trial.on_batch(self.trial.batch)
            self.trial.batch += 1
            self.trial.weight += self.random.gauss(0, 1)
            metrics.append({"loss": self.trial.weight})
            if stop():
                break
        return metrics

    def validate(self, stop: Callable[[], bool]) -> Metrics | None:
        metrics = self.trial.evaluate()
        return None if stop() else metrics

    def snapshot(self) -> Callable[[Path], None]:
        state = {"weight": self.trial.weight, "batch": self.trial.batch, "random": self.random.getstate()}
        return lambda path: self.trial.on_write((path / "toy.json").write_text(json.dumps(state)))

    def load(self, path: Path, *, batches_trained: int) -> None:
        state = json.loads((path / "toy.json").read_text())
        self.trial.weight, self.trial.batch = state["weight"], batches_trained
        version, internal, gauss = state["random"]
        self.random.setstate((version, tuple(internal), gauss))

    def metadata(self) -> Metrics:
        return {"framework": "toy-1.0", "format": "json", "trial_framework": "toy"}


def load(path: str, tags: Sequence[str] | None = None, **options: Any) -> dict[str, Any]:
    return {"weight": json.loads((Path(path) / "toy.json").read_text())["weight"], "tags": tags, **options}


def run_trial(trial_class: type[ToyTrial], core: det_core.core.Context) -> None:
    context = det_core.TrialContext.from_core(core)
    det_core.trial.TrialLoop(ToyAdapter(trial_class(context)), core, context).run()
