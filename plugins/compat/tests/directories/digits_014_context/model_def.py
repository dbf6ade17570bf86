"""Handwritten digits; the trial owns its model, its optimizer and its scheduler."""

import torch
from determined.pytorch import DataLoader, LRScheduler, PyTorchTrial, PyTorchTrialContext
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset, random_split


class Net(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.hidden = nn.Linear(64, 48)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(48, 10)

    def forward(self, images):
        return self.out(self.dropout(torch.relu(self.hidden(images))))


class DigitsTrial(PyTorchTrial):
    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        self.model = self.context.wrap_model(Net(self.context.get_hparam("dropout")))
        self.optimizer = self.context.wrap_optimizer(
            torch.optim.Adam(self.model.parameters(), lr=self.context.get_hparam("learning_rate"))
        )
        self.lr_scheduler = self.context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=40),
            step_mode=LRScheduler.StepMode.STEP_EVERY_BATCH,
        )
        images, labels = load_digits(return_X_y=True)
        dataset = TensorDataset(torch.tensor(images / 16.0).float(), torch.tensor(labels))
        self.train_set, self.val_set = random_split(dataset, [1437, 360], torch.Generator().manual_seed(0))

    def clip(self, params):
        torch.nn.utils.clip_grad_norm_(params, self.context.get_hparam("max_norm"))

    def train_batch(self, batch, epoch_idx: int, batch_idx: int):
        images, labels = batch
        loss = nn.functional.cross_entropy(self.model(images), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer, clip_grads=self.clip)
        return {"loss": loss, "lr": self.lr_scheduler.get_last_lr()[0]}

    def evaluate_batch(self, batch):
        images, labels = batch
        scores = self.model(images)
        return {
            "validation_loss": nn.functional.cross_entropy(scores, labels).item(),
            "accuracy": (scores.argmax(1) == labels).float().mean().item(),
        }

    def build_training_data_loader(self):
        return DataLoader(self.train_set, batch_size=self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self):
        return DataLoader(self.val_set, batch_size=self.context.get_per_slot_batch_size())
