"""Network with two images as inputs and two outputs, the sum of two digits and whether the left one is larger."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from det_torch import DataLoader, PyTorchTrial, Reducer
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import Dataset

HELD_OUT = 360


class PairTrial(PyTorchTrial):
    def build_model(self) -> nn.Module:
        return PairNetwork(self.context.get_hparam("hidden"))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), lr=self.context.get_hparam("lr"))

    def train_batch(self, batch: Any, model: nn.Module, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        return self.losses(model(**batch["images"]), batch["answers"])

    def evaluate_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        answers = batch["answers"]
        outputs = model(**batch["images"])
        errors = (outputs["sum"].argmax(dim=1) - answers["sum"]).abs()
        agreement = (outputs["left_is_larger"] > 0) == (answers["left_is_larger"] > 0)
        return {
            "validation_loss": self.losses(outputs, answers)["loss"],
            "sum_accuracy": (errors == 0).float().mean(),
            "larger_accuracy": agreement.float().mean(),
            "wrong_sums": (errors > 0).sum(),
            "worst_sum_error": errors.max(),
        }

    def evaluation_reducer(self) -> dict[str, Reducer]:
        averages = dict.fromkeys(("validation_loss", "sum_accuracy", "larger_accuracy"), Reducer.AVG)
        return {**averages, "wrong_sums": Reducer.SUM, "worst_sum_error": Reducer.MAX}

    def losses(self, outputs: dict[str, torch.Tensor], answers: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        of_sum = F.cross_entropy(outputs["sum"], answers["sum"])
        of_larger = F.binary_cross_entropy_with_logits(outputs["left_is_larger"], answers["left_is_larger"])
        total = of_sum + self.context.get_hparam("larger_weight") * of_larger
        return {"loss": total, "sum_loss": of_sum, "larger_loss": of_larger}

    def build_training_data_loader(self) -> DataLoader[Any]:
        pairs = Pairs(slice(HELD_OUT, None), shuffle=True)
        return DataLoader(pairs, batch_size=self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> DataLoader[Any]:
        return DataLoader(Pairs(slice(HELD_OUT), shuffle=False), batch_size=HELD_OUT // 3)  # equal, for AVG


class PairNetwork(nn.Module):
    """Network with one encoder for both images and one head for each answer."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.trunk = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.ReLU())
        self.heads = nn.ModuleDict({"sum": nn.Linear(hidden, 19), "left_is_larger": nn.Linear(hidden, 1)})

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> dict[str, torch.Tensor]:
        both = self.trunk(torch.cat([self.encoder(left), self.encoder(right)], dim=1))
        return {name: head(both).squeeze(1) for name, head in self.heads.items()}


class Pairs(Dataset[Any]):
    """Pairs of images. Each image is the left one of one pair.

    Args:
        rows: the images to use, in a fixed random order.
        shuffle: draw the right image at random each time. Otherwise it is always the same.
    """

    def __init__(self, rows: slice, shuffle: bool) -> None:
        images, labels = load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(images))[rows]
        self.images, self.labels = torch.tensor(images[order] / 16, dtype=torch.float32), torch.tensor(labels[order])
        self.shuffle = shuffle

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, left: int) -> dict[str, Any]:
        right = int(torch.randint(len(self), ())) if self.shuffle else len(self) - 1 - left
        one, other = self.labels[left], self.labels[right]
        answers = {"sum": one + other, "left_is_larger": (one > other).float()}
        return {"images": {"left": self.images[left], "right": self.images[right]}, "answers": answers}
