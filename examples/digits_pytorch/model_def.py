"""Handwritten digits with a small network. det runs the backward pass and steps the optimizer."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from det_torch import DataLoader, LRScheduler, PyTorchTrial
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import Subset, TensorDataset


class DigitsTrial(PyTorchTrial):
    def build_model(self) -> nn.Module:
        hidden, dropout = self.context.get_hparam("hidden"), self.context.get_hparam("dropout")
        return nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, 10))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), lr=self.context.get_hparam("lr"))

    def create_lr_scheduler(self, optimizer: torch.optim.Optimizer) -> LRScheduler:
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
        return LRScheduler(scheduler, LRScheduler.StepMode.STEP_EVERY_EPOCH)

    def train_batch(self, batch: Any, model: nn.Module, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        images, labels = batch
        return {"loss": F.cross_entropy(model(images), labels)}

    def evaluate_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        images, labels = batch
        scores = model(images)
        accuracy = (scores.argmax(dim=1) == labels).float().mean()
        return {"validation_loss": F.cross_entropy(scores, labels), "accuracy": accuracy}

    def build_training_data_loader(self) -> DataLoader[Any]:
        training, _ = digits()
        return DataLoader(training, batch_size=self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> DataLoader[Any]:
        _, validation = digits()
        return DataLoader(validation, batch_size=len(validation))


def digits() -> tuple[Subset[Any], Subset[Any]]:
    """Return 1437 images for training and 360 for validation, as 64 pixels from 0 to 1 and labels from 0 to 9."""
    images, labels = load_digits(return_X_y=True)
    dataset = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
    order = np.random.default_rng(0).permutation(len(dataset)).tolist()
    return Subset(dataset, order[360:]), Subset(dataset, order[:360])
