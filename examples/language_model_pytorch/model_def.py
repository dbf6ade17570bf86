"""Recurrent network that predicts the next character of Python's own manual."""

from __future__ import annotations

import math
from pydoc_data.topics import topics
from typing import Any

import torch
from det_torch import DataLoader, LRScheduler, PyTorchTrial
from torch import nn
from torch.nn import functional as F  # noqa: N812

SYMBOLS = 128  # ASCII; other characters become question marks


class LanguageModelTrial(PyTorchTrial):
    def build_model(self) -> nn.Module:
        return CharacterModel(self.context.get_hparam("embedding"), self.context.get_hparam("hidden"))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=self.context.get_hparam("lr"))

    def create_lr_scheduler(self, optimizer: torch.optim.Optimizer) -> LRScheduler:
        warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, total_iters=self.context.get_hparam("warmup"))
        return LRScheduler(warmup, LRScheduler.StepMode.STEP_EVERY_OPTIMIZER_STEP)

    def train_batch(self, batch: Any, model: nn.Module, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        return {"loss": loss(model, batch)}

    def evaluate_full_dataset(self, data_loader: DataLoader[Any], model: nn.Module) -> dict[str, Any]:
        total = windows = 0.0
        for batch in data_loader:
            total += float(loss(model, self.context.to_device(batch))) * len(batch)
            windows += len(batch)
        return {"validation_loss": total / windows, "perplexity": math.exp(total / windows)}

    def build_training_data_loader(self) -> DataLoader[Any]:
        training, _ = manual(self.context.get_hparam("length"))
        return DataLoader(training, batch_size=self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> DataLoader[Any]:
        _, validation = manual(self.context.get_hparam("length"))
        return DataLoader(validation, batch_size=64)


class CharacterModel(nn.Module):
    """Network that maps characters (N, L) to scores of the character after each one (N, L, SYMBOLS)."""

    def __init__(self, embedding: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS, embedding)
        self.memory = nn.GRU(embedding, hidden, batch_first=True)
        self.scores = nn.Linear(hidden, SYMBOLS)

    def forward(self, characters: torch.Tensor) -> torch.Tensor:
        states, _ = self.memory(self.embedding(characters))
        return self.scores(states)


def loss(model: nn.Module, windows: torch.Tensor) -> torch.Tensor:
    """Return the mean cross entropy per character in nats, for windows (N, length + 1)."""
    return F.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())


def manual(length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return nine tenths of the text for training and one for validation, as windows of ``length + 1`` characters."""
    paragraphs = list(dict.fromkeys("\n\n".join(topics.values()).split("\n\n")))  # many topics repeat whole sections
    validation = paragraphs[::10]
    del paragraphs[::10]
    return windows_of(paragraphs, length + 1), windows_of(validation, length + 1)


def windows_of(paragraphs: list[str], size: int) -> torch.Tensor:
    text = torch.tensor(list("\n\n".join(paragraphs).encode("ascii", "replace")))
    return text[: len(text) // size * size].view(-1, size)
