"""Species of iris from four measurements, with a small network.

To train something else, replace `read_data` and the methods of the trial. det calls the methods, steps the optimizer,
and saves checkpoints. Read hyperparameters from the config, so that a search can change them.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import torch
from det_torch import DataLoader, PyTorchTrial
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import TensorDataset

SPECIES = ("setosa", "versicolor", "virginica")


class IrisTrial(PyTorchTrial):
    def build_model(self) -> nn.Module:
        hidden, dropout = self.context.get_hparam("hidden"), self.context.get_hparam("dropout")
        return nn.Sequential(nn.Linear(4, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, len(SPECIES)))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), lr=self.context.get_hparam("lr"))

    def train_batch(self, batch: Any, model: nn.Module, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        inputs, labels = batch
        return {"loss": F.cross_entropy(model(inputs), labels)}  # det minimizes "loss"

    def evaluate_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        inputs, labels = batch
        scores = model(inputs)
        accuracy = (scores.argmax(dim=1) == labels).float().mean()
        return {"validation_loss": F.cross_entropy(scores, labels), "accuracy": accuracy}

    def build_training_data_loader(self) -> DataLoader[Any]:
        training, _ = read_data()
        return DataLoader(training, batch_size=self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> DataLoader[Any]:
        _, validation = read_data()
        return DataLoader(validation, batch_size=self.context.get_per_slot_batch_size())


def read_data() -> tuple[TensorDataset, TensorDataset]:
    """Return 110 rows for training and 40 for validation. Each has the inputs and the number of the species."""
    with Path(__file__).with_name("iris.csv").open(encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]  # the first line has the names of the columns
    inputs = torch.tensor([[float(cell) for cell in row[:4]] for row in rows])
    inputs = (inputs - inputs.mean(dim=0)) / inputs.std(dim=0)
    labels = torch.tensor([SPECIES.index(row[4]) for row in rows])
    return TensorDataset(inputs[40:], labels[40:]), TensorDataset(inputs[:40], labels[:40])
