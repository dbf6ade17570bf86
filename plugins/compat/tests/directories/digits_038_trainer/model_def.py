import torch
from determined import pytorch
from sklearn.datasets import load_digits
from torch import nn


class DigitsTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext, hparams: dict) -> None:
        self.context = context
        self.batch_size = hparams["batch_size"] // context.distributed.get_size()
        self.model = context.wrap_model(
            nn.Sequential(nn.Linear(64, hparams["hidden_size"]), nn.ReLU(), nn.Linear(hparams["hidden_size"], 10))
        )
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=hparams["learning_rate"]))
        digits = load_digits()
        images = torch.tensor(digits.data / 16, dtype=torch.float32)
        self.dataset = torch.utils.data.TensorDataset(images, torch.tensor(digits.target))

    def train_batch(self, batch: pytorch.TorchData, epoch_idx: int, batch_idx: int) -> dict:
        images, labels = batch
        loss = nn.functional.cross_entropy(self.model(images), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"train_loss": loss}

    def evaluate_batch(self, batch: pytorch.TorchData) -> dict:
        images, labels = batch
        scores = self.model(images)
        accuracy = (scores.argmax(dim=1) == labels).float().mean()
        return {"validation_loss": nn.functional.cross_entropy(scores, labels), "accuracy": accuracy}

    def build_training_data_loader(self) -> pytorch.DataLoader:
        train = torch.utils.data.Subset(self.dataset, range(360, len(self.dataset)))
        return pytorch.DataLoader(train, batch_size=self.batch_size, shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(torch.utils.data.Subset(self.dataset, range(360)), batch_size=self.batch_size)
