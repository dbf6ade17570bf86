"""Malignant or benign: AUC and per-class recall cannot be averaged over batches, so they get reducers."""

import determined as det
import numpy as np
import torch
from determined import pytorch
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler
from torch import nn


class RecallPerClass(pytorch.MetricReducer):
    def __init__(self):
        self.reset()

    def reset(self):
        self.found = np.zeros(2)
        self.total = np.zeros(2)

    def update(self, predicted, true):
        for label in (0, 1):
            self.found[label] += int(((predicted == label) & (true == label)).sum())
            self.total[label] += int((true == label).sum())

    def per_slot_reduce(self):
        return self.found, self.total

    def cross_slot_reduce(self, per_slot_metrics):
        found, total = np.sum(per_slot_metrics, axis=0)
        recall = found / total
        # no name was given to wrap_reducer(), so a dict is returned
        return {"recall_malignant": float(recall[0]), "recall_benign": float(recall[1])}


def auc(values):
    probabilities = np.concatenate([value[0] for value in values])
    labels = np.concatenate([value[1] for value in values])
    return roc_auc_score(labels, probabilities)


class TumorTrial(pytorch.PyTorchTrial):
    def __init__(self, context: det.pytorch.PyTorchTrialContext) -> None:
        self.context = context
        layers = context.get_hparam("layers")
        self.model = context.wrap_model(
            nn.Sequential(
                nn.Linear(30, layers["hidden"]),
                nn.ReLU(),
                nn.Dropout(layers["dropout"]),
                nn.Linear(layers["hidden"], 1),
            )
        )
        self.opt = context.wrap_optimizer(torch.optim.AdamW(self.model.parameters(), lr=context.get_hparam("lr")))
        self.auc = context.wrap_reducer(auc, name="auc", for_training=False)
        self.recall = context.wrap_reducer(RecallPerClass(), for_training=False)
        self.seen = context.wrap_reducer(lambda values: int(np.sum(values)), name="records", for_validation=False)

        features, labels = load_breast_cancer(return_X_y=True)
        features = StandardScaler().fit_transform(features)
        self.data = torch.utils.data.TensorDataset(
            torch.as_tensor(features, dtype=torch.float32), torch.as_tensor(labels, dtype=torch.float32)
        )

    def train_batch(self, batch, epoch_idx, batch_idx):
        features, labels = batch
        loss = nn.functional.binary_cross_entropy_with_logits(self.model(features).squeeze(1), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.opt)
        self.seen.update(len(labels))
        return {"loss": loss}

    def evaluate_batch(self, batch):
        features, labels = batch
        logits = self.model(features).squeeze(1)
        self.auc.update((torch.sigmoid(logits).cpu().numpy(), labels.cpu().numpy()))
        self.recall.update((logits > 0).long().cpu(), labels.long().cpu())
        return {"validation_loss": nn.functional.binary_cross_entropy_with_logits(logits, labels)}

    def build_training_data_loader(self):
        chosen = [i for i in range(len(self.data)) if i % 5]
        return pytorch.DataLoader(
            torch.utils.data.Subset(self.data, chosen), batch_size=self.context.get_per_slot_batch_size(), shuffle=True
        )

    def build_validation_data_loader(self):
        chosen = [i for i in range(len(self.data)) if i % 5 == 0]
        return pytorch.DataLoader(torch.utils.data.Subset(self.data, chosen), batch_size=20)
