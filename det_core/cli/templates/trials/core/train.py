"""Species of iris from four measurements, by softmax regression in plain Python on the Core API.

To train something else, replace `read_data` and `Model`. Every call of det is in `main`.
"""

from __future__ import annotations

import csv
import json
import math
import random
from pathlib import Path

import det_core

SPECIES = ("setosa", "versicolor", "virginica")


def main() -> None:
    info = det_core.get_cluster_info()  # what `det run` passes to this script
    if info is None or info.trial is None:
        raise SystemExit("start this script with: det run const.yaml")
    training, validation = read_data()
    model, epoch = Model(lr=info.trial.hparams["lr"]), 0
    with det_core.core.init() as core_context:
        if info.latest_checkpoint:  # the trial was interrupted; continue after the latest checkpoint
            with core_context.checkpoint.restore_path(info.latest_checkpoint) as path:
                model.load(path)
            epoch = core_context.checkpoint.get_metadata(info.latest_checkpoint)["steps_completed"]
        for operation in core_context.searcher.operations():
            while epoch < operation.length:  # total number of epochs; searcher.max_length in the config
                epoch += 1
                loss = model.train_epoch(training, seed=epoch)
                core_context.train.report_training_metrics(steps_completed=epoch, metrics={"loss": loss})
                metrics = model.evaluate(validation)
                core_context.train.report_validation_metrics(steps_completed=epoch, metrics=metrics)
                operation.report_progress(epoch)
                stops = core_context.preempt.should_preempt()  # after Ctrl-C, for example
                if stops or epoch % 10 == 0 or epoch == operation.length:
                    with core_context.checkpoint.store_path({"steps_completed": epoch}) as (path, _):
                        model.save(path)
                if stops:
                    return
            operation.report_completed(model.evaluate(validation)["validation_loss"])


class Model:
    """Softmax regression with a weight for each species and input, trained one row at a time."""

    def __init__(self, lr: float) -> None:
        self.lr = lr
        self.weights = [[0.0] * 5 for _ in SPECIES]

    def train_epoch(self, rows: list[tuple[list[float], int]], seed: int) -> float:
        """Train on all rows in a random order, and return the mean loss. The same seed gives the same order."""
        loss = 0.0
        for inputs, label in random.Random(seed).sample(rows, len(rows)):  # noqa: S311
            probabilities = self.predict(inputs)
            loss -= math.log(probabilities[label])
            for index, weights in enumerate(self.weights):
                step = self.lr * (probabilities[index] - (index == label))
                for position, value in enumerate(inputs):
                    weights[position] -= step * value
        return loss / len(rows)

    def evaluate(self, rows: list[tuple[list[float], int]]) -> dict[str, float]:
        """Return the mean loss and the share of rows whose species is predicted correctly."""
        predicted = [(self.predict(inputs), label) for inputs, label in rows]
        loss = -sum(math.log(probabilities[label]) for probabilities, label in predicted)
        correct = sum(max(probabilities) == probabilities[label] for probabilities, label in predicted)
        return {"validation_loss": loss / len(rows), "accuracy": correct / len(rows)}

    def predict(self, inputs: list[float]) -> list[float]:
        """Return the probability of each species."""
        scores = [math.exp(sum(map(float.__mul__, weights, inputs))) for weights in self.weights]
        return [score / sum(scores) for score in scores]

    def save(self, directory: Path) -> None:
        (directory / "weights.json").write_text(json.dumps(self.weights), encoding="utf-8")

    def load(self, directory: Path) -> None:
        self.weights = json.loads((directory / "weights.json").read_text(encoding="utf-8"))


def read_data() -> tuple[list[tuple[list[float], int]], list[tuple[list[float], int]]]:
    """Return 110 rows for training and 40 for validation. Each has the inputs and the number of the species."""
    with Path(__file__).with_name("iris.csv").open(encoding="utf-8") as file:
        cells = list(csv.reader(file))[1:]  # the first line has the names of the columns
    rows = [([*(float(cell) / 10 for cell in row[:4]), 1.0], SPECIES.index(row[4])) for row in cells]
    return rows[40:], rows[:40]


if __name__ == "__main__":
    main()
