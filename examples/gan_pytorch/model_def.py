"""Generative adversarial network that draws digits, with two models, two optimizers and a metric of their quality."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from det_torch import DataLoader, PyTorchTrial, PyTorchTrialContext
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import TensorDataset


class GanTrial(PyTorchTrial):
    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        self.noise, hidden = context.get_hparam("noise"), context.get_hparam("hidden")
        generator = [nn.Linear(self.noise, hidden), nn.BatchNorm1d(hidden), nn.ReLU()]
        generator += [nn.Linear(hidden, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, 64), nn.Sigmoid()]
        discriminator = [nn.Linear(64, hidden), nn.LeakyReLU(0.2), nn.Dropout(context.get_hparam("dropout"))]
        discriminator += [nn.Linear(hidden, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, 1), nn.Flatten(0)]
        self.generator = context.wrap_model(nn.Sequential(*generator))
        self.discriminator = context.wrap_model(nn.Sequential(*discriminator))
        self.generator_adam = self.adam(self.generator, context.get_hparam("generator_lr"))
        self.discriminator_adam = self.adam(self.discriminator, context.get_hparam("discriminator_lr"))

    def adam(self, model: nn.Module, lr: float) -> torch.optim.Optimizer:
        return self.context.wrap_optimizer(torch.optim.Adam(model.parameters(), lr, betas=(0.5, 0.999)))

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        (images,) = batch
        drawn = self.draw(len(images))
        real, fake = self.discriminator(images), self.discriminator(drawn.detach())
        discriminator_loss = F.softplus(-real).mean() + F.softplus(fake).mean()
        self.context.backward(discriminator_loss)
        self.context.step_optimizer(self.discriminator_adam)

        self.discriminator.requires_grad_(False)  # otherwise its next step would include the generator's gradients
        generator_loss = F.softplus(-self.discriminator(drawn)).mean()
        self.context.backward(generator_loss)
        self.context.step_optimizer(self.generator_adam)
        self.discriminator.requires_grad_(True)
        return {"loss": generator_loss, "discriminator_loss": discriminator_loss}

    def evaluate_full_dataset(self, data_loader: DataLoader[Any]) -> dict[str, Any]:
        real = torch.cat([self.context.to_device(images) for (images,) in data_loader])
        of_real, of_drawn = recognized(real, self.draw(len(real)))
        return {"told_apart": max(of_real, of_drawn), "real_recognized": of_real, "drawn_recognized": of_drawn}

    def draw(self, count: int) -> torch.Tensor:
        return self.generator(torch.randn(count, self.noise, device=self.context.device))

    def build_training_data_loader(self) -> DataLoader[Any]:
        training, _ = digits()
        return DataLoader(training, self.context.get_per_slot_batch_size(), shuffle=True, drop_last=True)

    def build_validation_data_loader(self) -> DataLoader[Any]:
        _, validation = digits()
        return DataLoader(validation, batch_size=100)


def recognized(real: torch.Tensor, drawn: torch.Tensor) -> tuple[float, float]:
    """Return the shares of real and of drawn images whose nearest neighbour is of the same kind.

    Both are 0.5 if real and drawn images cannot be distinguished. If real images are only near real ones, the drawn
    ones are bad or lack variety. If drawn images are only near drawn ones, they are all alike, or unlike real ones.

    Args:
        real, drawn: images as rows of pixels. There must be the same number of both.
    """
    images = torch.cat([real, drawn])
    is_real = torch.arange(len(images), device=images.device) < len(real)
    nearest = torch.cdist(images, images).fill_diagonal_(torch.inf).argmin(dim=1)
    own_kind = (is_real == is_real[nearest]).float()
    return own_kind[is_real].mean().item(), own_kind[~is_real].mean().item()


def digits() -> tuple[TensorDataset, TensorDataset]:
    """Return 1437 images for training and 360 for comparison, as 64 pixels from 0 to 1."""
    images = np.random.default_rng(0).permutation(load_digits().data)
    pixels = torch.tensor(images / 16, dtype=torch.float32)
    return TensorDataset(pixels[360:]), TensorDataset(pixels[:360])
