"""Training with several processes, which torchrun starts. torch.distributed averages their gradients.

Each worker saves its own random state, and all of them write one checkpoint together.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import det_core as det

EPOCHS = 5


def main() -> None:
    dist.init_process_group("gloo")
    distributed = det.core.DistributedContext.from_torch_distributed()
    with det.core.init(distributed=distributed) as core_context:
        images, labels = map(torch.as_tensor, load_digits(return_X_y=True))
        images = images.float() / 16
        torch.manual_seed(distributed.rank)  # each worker draws other images
        model = DistributedDataParallel(torch.nn.Linear(64, 10))  # all workers start with the chief's weights
        latest, epoch = core_context.latest_checkpoint, 0
        if latest:
            with core_context.checkpoint.restore_path(latest) as path:
                model.load_state_dict(torch.load(path / "model.pt", weights_only=True))
                torch.set_rng_state(torch.load(path / f"random_{distributed.rank}.pt", weights_only=True))
            epoch = core_context.checkpoint.get_metadata(latest)["steps_completed"]
            print(f"continuing after epoch {epoch}")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        while epoch < EPOCHS:
            epoch += 1
            for rows in torch.randperm(1500)[: 1500 // distributed.size].split(32):
                loss = cross_entropy(model(images[rows]), labels[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            losses = distributed.gather(loss.item())
            if losses:  # None except on the chief
                accuracy = (model.module(images[1500:]).argmax(dim=1) == labels[1500:]).float().mean()
                core_context.train.report_training_metrics(epoch, {"loss": sum(losses) / len(losses)})
                core_context.train.report_validation_metrics(epoch, {"accuracy": accuracy.item()})
            with core_context.checkpoint.store_path({"steps_completed": epoch}, shard=True) as (path, _):
                torch.save(torch.get_rng_state(), path / f"random_{distributed.rank}.pt")
                if distributed.rank == 0:
                    torch.save(model.state_dict(), path / "model.pt")
            print(f"epoch {epoch}: loss {loss.item():.4f}")
            if core_context.preempt.should_preempt():
                break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
