"""Three cultivars of wine; callbacks stop early and keep a moving average of the weights."""

import json
from pathlib import Path

import torch
from determined.pytorch import DataLoader, PyTorchCallback, PyTorchTrial, PyTorchTrialContext
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from torch import nn


class EarlyStopping(PyTorchCallback):
    """Stops the trial after some validations without a better loss."""

    def __init__(self, context, patience):
        self.context = context
        self.patience = patience
        self.best = float("inf")
        self.waited = 0

    def on_validation_end(self, metrics):
        if metrics["validation_loss"] < self.best:
            self.best, self.waited = metrics["validation_loss"], 0
        else:
            self.waited += 1
        if self.waited >= self.patience:
            self.context.set_stop_requested(True)

    def state_dict(self):
        return {"best": self.best, "waited": self.waited}

    def load_state_dict(self, state_dict):
        self.best = state_dict["best"]
        self.waited = state_dict["waited"]


class MovingAverage(PyTorchCallback):
    """Keeps an exponential moving average of the weights in the checkpoint."""

    def __init__(self, model, decay=0.9):
        self.model = model
        self.decay = decay
        self.average = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
        self.epochs = []

    def on_training_epoch_start(self, epoch_idx):
        self.epochs.append(epoch_idx)

    def on_training_workload_end(self, avg_metrics, batch_metrics):
        for name, tensor in self.model.named_parameters():
            self.average[name].mul_(self.decay).add_(tensor.detach().cpu(), alpha=1 - self.decay)

    def on_checkpoint_write_end(self, checkpoint_dir):
        with Path(checkpoint_dir, "epochs.json").open("w") as f:
            json.dump(self.epochs, f)

    def state_dict(self):
        return {"average": self.average, "epochs": self.epochs}

    def load_state_dict(self, state_dict):
        self.average = state_dict["average"]
        self.epochs = list(state_dict["epochs"])


class WineTrial(PyTorchTrial):
    def __init__(self, context: PyTorchTrialContext):
        self.context = context
        self.model = self.context.wrap_model(
            nn.Sequential(nn.BatchNorm1d(13), nn.Linear(13, 20), nn.ReLU(), nn.Linear(20, 3))
        )
        self.optimizer = self.context.wrap_optimizer(
            torch.optim.Adam(self.model.parameters(), self.context.get_hparam("learning_rate"))
        )
        self.early_stopping = EarlyStopping(context, context.get_hparam("patience"))
        features, cultivars = load_wine(return_X_y=True)
        self.split = train_test_split(features, cultivars, test_size=36, random_state=7)

    def build_callbacks(self):
        return {"early_stopping": self.early_stopping, "moving_average": MovingAverage(self.model)}

    def dataset(self, features, cultivars):
        return torch.utils.data.TensorDataset(torch.tensor(features).float(), torch.tensor(cultivars).long())

    def build_training_data_loader(self):
        train_x, _, train_y, _ = self.split
        return DataLoader(
            self.dataset(train_x, train_y),
            batch_size=self.context.get_per_slot_batch_size(),
            shuffle=True,
            drop_last=False,
        )

    def build_validation_data_loader(self):
        _, val_x, _, val_y = self.split
        return DataLoader(self.dataset(val_x, val_y), batch_size=36)

    def train_batch(self, batch, epoch_idx, batch_idx):
        features, cultivars = batch
        loss = nn.functional.cross_entropy(self.model(features), cultivars)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return loss

    def evaluate_batch(self, batch, batch_idx):
        features, cultivars = batch
        return {"validation_loss": nn.functional.cross_entropy(self.model(features), cultivars)}
