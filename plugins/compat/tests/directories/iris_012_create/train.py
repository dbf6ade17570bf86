"""Trains the iris model on the cluster: `python3 train.py --hidden 16`."""

import argparse
import pathlib

import torch
import yaml
from determined import experimental
from determined.pytorch import DataLoader, PyTorchTrial, PyTorchTrialContext
from sklearn.datasets import load_iris
from torch import nn
from torch.utils.data import TensorDataset


class IrisTrial(PyTorchTrial):
    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context

    def build_model(self):
        hidden = self.context.get_hparam("hidden")
        return nn.Sequential(nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, 3))

    def optimizer(self, model):
        return torch.optim.Adam(model.parameters(), lr=self.context.get_hparam("lr"))

    def train_batch(self, batch, model, epoch_idx, batch_idx):
        measurements, species = batch
        return {"loss": nn.functional.cross_entropy(model(measurements), species)}

    def evaluate_batch(self, batch, model):
        measurements, species = batch
        return {"validation_error": (model(measurements).argmax(1) != species).float().mean().item()}

    def dataset(self, remainder):
        measurements, species = load_iris(return_X_y=True)
        rows = [i for i in range(150) if (i % 5 == 0) == remainder]
        return TensorDataset(torch.tensor(measurements[rows]).float(), torch.tensor(species[rows]))

    def build_training_data_loader(self):
        return DataLoader(self.dataset(False), batch_size=self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self):
        return DataLoader(self.dataset(True), batch_size=self.context.get_per_slot_batch_size())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--hidden", type=int, default=8)
    parser.add_argument("--config", default="const.yaml")
    args = parser.parse_args()

    config = yaml.safe_load(pathlib.Path(args.config).read_text())
    config["hyperparameters"]["hidden"] = args.hidden
    exp = experimental.create(trial_def=IrisTrial, config=config, local=False, test=False, context_dir=".")
