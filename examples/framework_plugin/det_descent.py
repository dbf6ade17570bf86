"""Framework plugin in one file, for gradient descent with momentum in plain Python."""

from __future__ import annotations

import json
import logging
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import det_core
from det_core.interfaces.framework import Metrics, OnAllWorkers, TrialAdapter
from det_core.specs import FrameworkSpec
from det_core.trial import TrialContext, TrialLoop


@det_core.hookimpl
def det_frameworks() -> Iterator[FrameworkSpec]:
    yield FrameworkSpec(name="descent", target="det_descent:run_trial")


@det_core.hookimpl
def det_choose_framework(mro: Sequence[str]) -> str | None:
    return "descent" if "det_descent.DescentTrial" in mro else None


class DescentTrial(det_core.Trial):
    """Base class of trials. Its hyperparameters are ``global_batch_size`` and ``learning_rate``."""

    def __init__(self, context: TrialContext) -> None:
        self.context = context

    @abstractmethod
    def build(self, random: Random) -> tuple[list[float], Sequence[Any], Sequence[Any]]:
        """Return the initial weights, the training records and the validation records."""

    @abstractmethod
    def gradient(self, weights: list[float], batch: Sequence[Any], random: Random) -> tuple[list[float], Metrics]:
        """Return the gradient of the loss over a batch, and the metrics of the batch."""

    @abstractmethod
    def evaluate(self, weights: list[float], record: Any, random: Random) -> float:
        """Return the loss of a validation record."""


class DescentAdapter(TrialAdapter):
    writes_behind = True

    def __init__(self, trial: DescentTrial) -> None:
        self.trial, self.seed = trial, trial.context.get_trial_seed()
        self.rate, self.size = trial.context.get_hparam("learning_rate"), trial.context.get_global_batch_size()
        self.random = self.generator("training")
        self.weights, self.training, self.validation = trial.build(self.random)
        self.velocity, self.steepest, self.batch = [0.0] * len(self.weights), 0.0, 0

    @property
    def batches_per_epoch(self) -> int:
        return -(-len(self.training) // self.size)

    @property
    def records_per_batch(self) -> int:
        return self.size

    def train(self, batches: int, stop: Callable[[], bool]) -> list[Metrics]:
        rows: list[Metrics] = []
        while len(rows) < batches and not (rows and stop()):
            rows.append(self.train_batch())
        return rows

    def train_batch(self) -> Metrics:
        epoch, batch = divmod(self.batch, self.batches_per_epoch)
        shuffled = self.generator(f"epoch {epoch}").sample(self.training, len(self.training))
        records = shuffled[batch * self.size :][: self.size]
        try:
            gradient, metrics = self.trial.gradient(self.weights, records, self.random)
        except Exception:
            logging.getLogger("det.descent").error("training failed at batch %d, counted from 0", self.batch)
            raise
        self.velocity = [0.9 * speed - self.rate * slope for speed, slope in zip(self.velocity, gradient, strict=True)]
        self.weights = [weight + speed for weight, speed in zip(self.weights, self.velocity, strict=True)]
        self.steepest = max(self.steepest, *map(abs, gradient))
        self.batch += 1
        return metrics

    def generator(self, purpose: str) -> Random:
        return Random(f"{self.seed} {purpose}")

    def reduced(self) -> Metrics:
        steepest, self.steepest = self.steepest, 0.0
        return {"steepest": steepest}

    def validate(self, stop: Callable[[], bool]) -> Metrics | None:
        random, losses = self.generator("validation"), []
        for record in self.validation:
            losses.append(self.trial.evaluate(self.weights, record, random))
            if stop():
                return None
        return {"validation_loss": sum(losses) / len(losses)}

    def snapshot(self) -> Callable[[Path], None]:
        state = {"weights": self.weights, "velocity": self.velocity, "steepest": self.steepest}
        text = json.dumps({**state, "random": self.random.getstate()})
        return lambda path: (path / "descent.json").write_text(text) and None

    def load(self, path: Path, *, batches_trained: int) -> None:
        state = json.loads((path / "descent.json").read_text())
        self.weights, self.batch = state["weights"], batches_trained
        if batches_trained:
            self.velocity, self.steepest = state["velocity"], state["steepest"]
            version, numbers, gauss = state["random"]
            self.random.setstate((version, tuple(numbers), gauss))

    def metadata(self) -> Metrics:
        return {"framework": "descent-1.0.0", "format": "json", "trial_framework": "descent"}

    def write_initial_state(self, path: Path, *, most: int) -> int:
        self.snapshot()(path)
        return (path / "descent.json").stat().st_size

    def rehearse(self, together: OnAllWorkers) -> Metrics | None:
        record, random = self.validation[0], self.generator("validation")
        losses = together(lambda: self.trial.evaluate(self.weights, record, random))
        return {"validation_loss": losses[0]}


def run_trial(trial_class: type[DescentTrial], core: det_core.core.Context) -> None:
    context = TrialContext.from_core(core)
    TrialLoop(DescentAdapter(trial_class(context)), core, context).run()
