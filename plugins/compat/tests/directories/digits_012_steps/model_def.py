"""Handwritten digits with a small CNN."""

from typing import Any, cast

import determined as det
import torch
from determined.pytorch import DataLoader, LRScheduler, PyTorchTrial, Reducer, reset_parameters
from layers import Flatten
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset


def error_rate(predictions: torch.Tensor, labels: torch.Tensor) -> float:
    return 1.0 - float((predictions.argmax(1) == labels).sum()) / predictions.shape[0]


class DigitsTrial(PyTorchTrial):
    def __init__(self, context: det.TrialContext) -> None:
        self.context = context
        self.held_out = context.get_data_config()["held_out"]

    def build_model(self) -> nn.Module:
        n_filters = self.context.get_hparam("n_filters")
        model = nn.Sequential(
            nn.Conv2d(1, n_filters, kernel_size=3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            Flatten(),
            nn.Linear(n_filters * 9, 10),
            nn.LogSoftmax(dim=1),
        )
        reset_parameters(model)
        return model

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=self.context.get_hparam("learning_rate"), momentum=0.9)

    def create_lr_scheduler(self, optimizer: torch.optim.Optimizer) -> LRScheduler:
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
        return LRScheduler(scheduler, LRScheduler.StepMode.STEP_EVERY_EPOCH)

    def train_batch(self, batch: Any, model: nn.Module, epoch_idx: int, batch_idx: int) -> Any:
        data, labels = cast(Any, batch)
        output = model(data)
        loss = torch.nn.functional.nll_loss(output, labels)
        return {"loss": loss, "train_error": error_rate(output, labels)}

    def evaluate_batch(self, batch: Any, model: nn.Module) -> Any:
        data, labels = cast(Any, batch)
        output = model(data)
        return {
            "validation_error": error_rate(output, labels),
            "worst_loss": torch.nn.functional.nll_loss(output, labels).item(),
            "wrong": int((output.argmax(1) != labels).sum()),
        }

    def evaluation_reducer(self) -> Any:
        return {"validation_error": Reducer.AVG, "worst_loss": Reducer.MAX, "wrong": Reducer.SUM}

    def build_training_data_loader(self) -> DataLoader:
        images, labels = self.digits()
        dataset = TensorDataset(images[self.held_out :], labels[self.held_out :])
        return DataLoader(dataset, batch_size=self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> DataLoader:
        images, labels = self.digits()
        dataset = TensorDataset(images[: self.held_out], labels[: self.held_out])
        return DataLoader(dataset, batch_size=self.context.get_per_slot_batch_size())

    def digits(self) -> Any:
        digits = load_digits()
        images = torch.tensor(digits.images / 16.0, dtype=torch.float32).unsqueeze(1)
        return images, torch.tensor(digits.target, dtype=torch.long)
