"""Progression of diabetes a year later, on two GPUs (or two of whatever there is)."""

import logging

import numpy as np
import torch
from determined.pytorch import DataLoader, PyTorchTrial, PyTorchTrialContext
from sklearn.datasets import load_diabetes


class DiabetesTrial(PyTorchTrial):
    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        if context.distributed.get_rank() == 0:
            logging.info(f"{context.distributed.get_size()} slots on {context.distributed.get_num_agents()} agents")
        # Each process would download its own copy; only the first of each machine does.
        if context.distributed.get_local_rank() == 0:
            load_diabetes()

        self.model = context.wrap_model(torch.nn.Sequential(torch.nn.Linear(10, 1), torch.nn.Flatten(0)))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=context.get_hparam("lr")))
        self.squared_errors = context.wrap_reducer(self.root_mean, name="rmse", for_training=False)

    @staticmethod
    def root_mean(per_batch):
        return float(np.sqrt(np.concatenate(per_batch).mean()))

    def train_batch(self, batch, epoch_idx, batch_idx):
        measurements, progression = batch
        loss = torch.nn.functional.mse_loss(self.model(measurements), progression)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch):
        measurements, progression = batch
        errors = (self.model(measurements) - progression) ** 2
        self.squared_errors.update(errors.detach().cpu().numpy())
        return {"rank": float(self.context.distributed.get_rank())}

    def dataset(self, train):
        measurements, progression = load_diabetes(return_X_y=True)
        measurements, progression = measurements * 20, (progression - 152) / 77
        rows = slice(0, 354) if train else slice(354, None)
        return torch.utils.data.TensorDataset(
            torch.tensor(measurements[rows]).float(), torch.tensor(progression[rows]).float()
        )

    def build_training_data_loader(self):
        batch_size = self.context.get_per_slot_batch_size()
        assert batch_size * self.context.distributed.get_size() == self.context.get_global_batch_size()
        return DataLoader(self.dataset(train=True), batch_size=batch_size, shuffle=True)

    def build_validation_data_loader(self):
        return DataLoader(self.dataset(train=False), batch_size=self.context.get_per_slot_batch_size())
