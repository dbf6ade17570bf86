"""Iris species from their measurements; one metric is computed on the whole validation set at once."""

import determined as det
import numpy as np
import torch
from determined.pytorch import DataLoader, PyTorchTrial
from sklearn.datasets import load_iris
from sklearn.metrics import f1_score
from torch import nn

ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh}


class IrisDataset(torch.utils.data.Dataset):
    def __init__(self, train):
        measurements, species = load_iris(return_X_y=True)
        measurements = (measurements - measurements.mean(0)) / measurements.std(0)
        chosen = np.arange(len(species)) % 5 != 0 if train else np.arange(len(species)) % 5 == 0
        self.measurements = measurements[chosen].astype(np.float32)
        self.species = species[chosen]

    def __len__(self):
        return len(self.species)

    def __getitem__(self, index):
        return {"measurements": self.measurements[index], "species": self.species[index]}


class IrisTrial(PyTorchTrial):
    def __init__(self, trial_context: det.TrialContext) -> None:
        super().__init__(trial_context)
        self.hparams = trial_context.get_hparams()
        self.batch_size = trial_context.get_per_slot_batch_size()

    def build_model(self):
        return nn.Sequential(
            nn.Linear(4, self.hparams["hidden"]),
            ACTIVATIONS[self.hparams["activation"]](),
            nn.Dropout(self.hparams["dropout"]),
            nn.Linear(self.hparams["hidden"], 3),
        )

    def optimizer(self, model):
        return torch.optim.RMSprop(model.parameters(), lr=self.hparams["learning_rate"])

    def train_batch(self, batch, model, epoch_idx, batch_idx):
        # A tensor is taken as the loss.
        return nn.functional.cross_entropy(model(batch["measurements"]), batch["species"])

    def evaluate_full_dataset(self, data_loader, model):
        predicted, true = [], []
        for batch in data_loader:
            predicted.append(model(batch["measurements"]).argmax(1).cpu().numpy())
            true.append(batch["species"].cpu().numpy())
        predicted, true = np.concatenate(predicted), np.concatenate(true)
        return {"accuracy": float((predicted == true).mean()), "f1": f1_score(true, predicted, average="macro")}

    def build_training_data_loader(self):
        return DataLoader(IrisDataset(train=True), batch_size=self.batch_size, shuffle=True, drop_last=True)

    def build_validation_data_loader(self):
        return DataLoader(IrisDataset(train=False), batch_size=self.batch_size)
