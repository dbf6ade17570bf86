"""Regression of the progression of diabetes within a year on ten measurements of a patient."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from det_torch import DataLoader, PyTorchTrial
from sklearn.datasets import load_diabetes
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import TensorDataset


class DiabetesTrial(PyTorchTrial):
    def build_model(self) -> nn.Module:
        hidden, dropout = self.context.get_hparam("hidden"), self.context.get_hparam("dropout")
        return nn.Sequential(
            nn.Linear(10, hidden), nn.SiLU(), nn.Dropout(dropout), nn.Linear(hidden, 1), nn.Flatten(start_dim=0)
        )

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        lr, decay = self.context.get_hparam("lr"), self.context.get_hparam("weight_decay")
        return torch.optim.AdamW(model.parameters(), lr, weight_decay=decay)

    def train_batch(self, batch: Any, model: nn.Module, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        measurements, progress = batch
        return {"loss": F.mse_loss(model(measurements), progress)}

    def evaluate_full_dataset(self, data_loader: DataLoader[Any], model: nn.Module) -> dict[str, Any]:
        # R2 is not a mean over batches. It needs all predictions at once.
        batches = [self.context.to_device(batch) for batch in data_loader]
        predicted = torch.cat([model(measurements) for measurements, _ in batches])
        progress = torch.cat([progress for _, progress in batches])
        r2 = 1 - F.mse_loss(predicted, progress) / progress.var(correction=0)
        return {"r2": r2, "mean_absolute_error": F.l1_loss(predicted, progress)}

    def build_training_data_loader(self) -> DataLoader[Any]:
        training, _ = diabetes()
        return DataLoader(training, batch_size=self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> DataLoader[Any]:
        _, validation = diabetes()
        return DataLoader(validation, batch_size=32)


def diabetes() -> tuple[TensorDataset, TensorDataset]:
    """Return 332 patients for training and 110 for validation, standardized by the training set."""
    measurements, progress = load_diabetes(return_X_y=True)
    table = np.random.default_rng(0).permutation(np.c_[measurements, progress])
    training = table[110:]
    scaled = torch.tensor((table - training.mean(axis=0)) / training.std(axis=0), dtype=torch.float32)
    return TensorDataset(scaled[110:, :-1], scaled[110:, -1]), TensorDataset(scaled[:110, :-1], scaled[:110, -1])
