"""Handwritten digits with a small network. The trial itself runs the backward pass and steps the optimizer."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from det_torch import DataLoader, LRScheduler, PyTorchTrial, PyTorchTrialContext
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import Subset, TensorDataset


class DigitsTrial(PyTorchTrial):
    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        hidden, dropout = context.get_hparam("hidden"), context.get_hparam("dropout")
        network = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, 10))
        self.model = context.wrap_model(network)
        self.adam = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=context.get_hparam("lr")))
        context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.ExponentialLR(self.adam, gamma=0.9), LRScheduler.StepMode.STEP_EVERY_EPOCH
        )

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        images, labels = batch
        loss = F.cross_entropy(self.model(images), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.adam)
        return {"loss": loss}

    def evaluate_full_dataset(self, data_loader: DataLoader[Any]) -> dict[str, Any]:
        correct, loss, records = 0, 0.0, 0
        for batch in data_loader:
            images, labels = self.context.to_device(batch)
            scores = self.model(images)
            correct += int((scores.argmax(dim=1) == labels).sum())
            loss += float(F.cross_entropy(scores, labels, reduction="sum"))
            records += len(labels)
        return {"validation_loss": loss / records, "accuracy": correct / records}

    def build_training_data_loader(self) -> DataLoader[Any]:
        training, _ = digits()
        return DataLoader(training, batch_size=self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> DataLoader[Any]:
        _, validation = digits()
        return DataLoader(validation, batch_size=100)


def digits() -> tuple[Subset[Any], Subset[Any]]:
    """Return 1437 images for training and 360 for validation, as 64 pixels from 0 to 1 and labels from 0 to 9."""
    images, labels = load_digits(return_X_y=True)
    dataset = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
    order = np.random.default_rng(0).permutation(len(dataset)).tolist()
    return Subset(dataset, order[360:]), Subset(dataset, order[:360])
