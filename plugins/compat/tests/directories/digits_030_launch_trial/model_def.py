"""Digits by DDP; the entrypoint launches the trial class. Needs scikit-learn, see startup-hook.sh."""

import torch
from determined.pytorch import DataLoader, PyTorchTrial, PyTorchTrialContext
from sklearn.datasets import load_digits
from torch import nn


class DigitsTrial(PyTorchTrial):
    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(nn.Linear(64, 10))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=context.get_hparam("lr")))
        digits = load_digits()
        images, labels = torch.tensor(digits.data / 16).float(), torch.tensor(digits.target)
        self.data = [(images[i], labels[i]) for i in range(len(labels))]

    def train_batch(self, batch, epoch_idx, batch_idx):
        images, labels = batch
        loss = nn.functional.cross_entropy(self.model(images), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch):
        images, labels = batch
        return {"validation_loss": nn.functional.cross_entropy(self.model(images), labels)}

    def build_training_data_loader(self):
        return DataLoader(self.data[360:], batch_size=self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self):
        return DataLoader(self.data[:360], batch_size=self.context.get_per_slot_batch_size())
