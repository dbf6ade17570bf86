"""A GAN that draws digits: two models, two optimizers, one of them every other batch."""

import torch
from determined.pytorch import DataLoader, LRScheduler, PyTorchTrial, PyTorchTrialContext
from networks import Discriminator, Generator
from sklearn.datasets import load_digits
from torch.nn import functional as F
from torch.utils.data import TensorDataset


class GANTrial(PyTorchTrial):
    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        self.context = context
        self.latent_dim = context.get_hparam("latent_dim")

        self.generator = context.wrap_model(Generator(self.latent_dim))
        self.discriminator = context.wrap_model(Discriminator())
        self.opt_g = context.wrap_optimizer(
            torch.optim.Adam(self.generator.parameters(), lr=context.get_hparam("g_lr"), betas=(0.5, 0.999))
        )
        self.opt_d = context.wrap_optimizer(
            torch.optim.Adam(self.discriminator.parameters(), lr=context.get_hparam("d_lr"), betas=(0.5, 0.999))
        )
        self.sched_d = context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.LambdaLR(self.opt_d, lambda step: 0.99**step), LRScheduler.StepMode.MANUAL_STEP
        )

    def train_batch(self, batch, epoch_idx, batch_idx):
        (real,) = batch
        z = torch.randn(real.shape[0], self.latent_dim, device=self.context.device)
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        ones, zeros = self.context.to_device(ones), self.context.to_device(zeros)

        # Train the generator every d_steps batches.
        g_loss = F.binary_cross_entropy_with_logits(self.discriminator(self.generator(z)), ones)
        if batch_idx % self.context.get_hparam("d_steps") == 0:
            self.context.backward(g_loss)
            self.context.step_optimizer(self.opt_g)
        self.opt_d.zero_grad()

        d_loss = F.binary_cross_entropy_with_logits(self.discriminator(real), ones)
        d_loss = d_loss + F.binary_cross_entropy_with_logits(self.discriminator(self.generator(z).detach()), zeros)
        self.context.backward(d_loss)
        self.context.step_optimizer(self.opt_d)
        self.sched_d.step()
        return {"loss": d_loss, "g_loss": g_loss, "d_loss": d_loss}

    def evaluate_batch(self, batch):
        (real,) = batch
        z = torch.randn(real.shape[0], self.latent_dim, device=self.context.device)
        fake = self.generator(z)
        return {"loss": F.softplus(self.discriminator(fake)).mean() + F.softplus(-self.discriminator(real)).mean()}

    def build_training_data_loader(self):
        pixels = torch.tensor(load_digits().data[:1500] / 8.0 - 1.0, dtype=torch.float32)
        return DataLoader(TensorDataset(pixels), batch_size=self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self):
        pixels = torch.tensor(load_digits().data[1500:] / 8.0 - 1.0, dtype=torch.float32)
        return DataLoader(TensorDataset(pixels), batch_size=self.context.get_per_slot_batch_size())
