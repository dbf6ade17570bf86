"""Data-parallel training by torch's own DDP; every worker saves its random state into the same checkpoint."""

import logging

import determined as det
import torch
import torch.distributed as dist
from determined import core
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def save(core_context, model, optimizer, epoch):
    rank = core_context.distributed.rank
    with core_context.checkpoint.store_path({"steps_completed": epoch}, shard=True) as (path, _):
        if rank == 0:
            torch.save({"model": model.module.state_dict(), "optim": optimizer.state_dict()}, path / "model.pt")
            (path / "epoch").write_text(str(epoch))
        torch.save(torch.get_rng_state(), path / f"rng_{rank}.pt")


def restore(core_context, info, model, optimizer):
    if info.latest_checkpoint is None:
        return 0
    with core_context.checkpoint.restore_path(info.latest_checkpoint) as path:
        state = torch.load(path / "model.pt")
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optim"])
        torch.set_rng_state(torch.load(path / f"rng_{core_context.distributed.rank}.pt"))
        return int((path / "epoch").read_text())


def evaluate(core_context, model, images, labels):
    rank, size = core_context.distributed.rank, core_context.distributed.size
    with torch.no_grad():
        loss = nn.functional.cross_entropy(model.module(images[rank::size]), labels[rank::size], reduction="sum")
    parts = core_context.distributed.gather((float(loss), len(labels[rank::size])))
    if rank == 0:
        return sum(loss for loss, _ in parts) / sum(count for _, count in parts)
    return None


def main(core_context, info):
    hparams = info.trial.hparams
    is_chief = core_context.distributed.rank == 0
    torch.manual_seed(info.trial.trial_seed)
    digits = load_digits()
    images, labels = torch.tensor(digits.data / 16).float(), torch.tensor(digits.target)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=hparams["lr"], momentum=0.9)
    epoch = restore(core_context, info, model, optimizer)

    train_set = TensorDataset(images[360:], labels[360:])
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=hparams["batch_size"] // dist.get_world_size(), sampler=sampler)

    for op in core_context.searcher.operations():
        while epoch < op.length:
            sampler.set_epoch(epoch)
            for x, y in loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
            epoch += 1
            model.eval()
            validation_loss = evaluate(core_context, model, images[:360], labels[:360])
            model.train()
            if is_chief:
                core_context.train.report_training_metrics(epoch, {"loss": loss.item()})
                core_context.train.report_validation_metrics(epoch, {"validation_loss": validation_loss})
                op.report_progress(epoch)
            save(core_context, model, optimizer, epoch)
            if core_context.preempt.should_preempt():
                return
        if is_chief:
            op.report_completed(validation_loss)


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG, format=det.LOG_FORMAT)
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        distributed = core.DistributedContext.from_torch_distributed()
        with core.init(distributed=distributed) as core_context:
            main(core_context, det.get_cluster_info())
    finally:
        dist.destroy_process_group()
