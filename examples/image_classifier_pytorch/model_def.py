"""Convolutional network that learns handwritten digits from a few images, which are distorted at random."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from det_torch import DataLoader, LRScheduler, PyTorchTrial
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import TensorDataset


class ImageClassifierTrial(PyTorchTrial):
    def build_model(self) -> nn.Module:
        width, dropout = self.context.get_hparam("width"), self.context.get_hparam("dropout")
        return nn.Sequential(
            *convolution(1, width),
            *convolution(width, width),
            nn.MaxPool2d(2),
            *convolution(width, 2 * width),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(8 * width, 10),
        )

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        momentum, decay = self.context.get_hparam("momentum"), self.context.get_hparam("weight_decay")
        lr = self.context.get_hparam("lr")
        return torch.optim.SGD(model.parameters(), lr, momentum, weight_decay=decay, nesterov=True)

    def create_lr_scheduler(self, optimizer: torch.optim.Optimizer) -> LRScheduler:
        epochs = self.context.get_experiment_config()["searcher"]["max_length"]["epochs"]
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)
        return LRScheduler(scheduler, LRScheduler.StepMode.STEP_EVERY_EPOCH)

    def train_batch(self, batch: Any, model: nn.Module, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        images, labels = batch
        return {"loss": F.cross_entropy(model(distorted(images, self.context.get_hparam("distortion"))), labels)}

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


def distorted(images: torch.Tensor, strength: float) -> torch.Tensor:
    """Rotate, shear, scale and move every image a little.

    The random numbers come from torch's global generator, so a trial that was killed resumes with the same distortions.

    Args:
        images: batch of images.
        strength: standard deviation of the distortion; 0 leaves the images as they are.
    """
    maps = torch.eye(2, 3, device=images.device) + strength * torch.randn(len(images), 2, 3, device=images.device)
    grid = F.affine_grid(maps, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, align_corners=False)


def convolution(channels: int, width: int) -> list[nn.Module]:
    return [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]


def digits() -> tuple[TensorDataset, TensorDataset]:
    """Return 300 images for training and 1497 for validation, as 1 x 8 x 8 pixels from 0 to 1 and labels 0 to 9."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    pixels = torch.tensor(images[order] / 16, dtype=torch.float32).view(-1, 1, 8, 8)
    shown = torch.tensor(labels[order])
    return TensorDataset(pixels[:300], shown[:300]), TensorDataset(pixels[300:], shown[300:])
