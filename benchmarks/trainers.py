"""What each way to train costs per batch, over the same model in a plain PyTorch loop.

    python benchmarks/trainers.py [mlp-100 | mlp-1 | cnn-100 | cnn-1 | start ...]

A plain loop, det, the system that det replaces, Lightning, Fabric and Accelerate train the same model on the same data,
each in a process of its own; they take turns, a round of batches each, while the others wait. ``mlp-1`` reports the
loss of every batch, TensorBoard included, ``mlp-100`` that of every hundredth (det and the original: of all hundred, at
once). The plain loop reports nothing. Ratios are medians over rounds. ``start`` is the time from the start of the
process to its first batch.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROUNDS = 15
BATCH_SIZE = 32
CASES = {"mlp-100": ("mlp", 100), "mlp-1": ("mlp", 1), "cnn-100": ("cnn", 100), "cnn-1": ("cnn", 1)}
BATCHES = {"mlp": 1000, "cnn": 300}
"""Per round."""


class Turns:
    """Called before every batch: at the end of a round it tells the time, and waits for its next turn."""

    def __init__(self, batches: int) -> None:
        self._batches = batches
        self._count = -1
        self._start = 0.0

    def __call__(self) -> None:
        self._count += 1
        if self._count % self._batches:
            return
        print((time.perf_counter() - self._start) / self._batches * 1e6, flush=True)
        if not sys.stdin.readline():
            os._exit(0)
        self._start = time.perf_counter()


def build(kind: str) -> Any:
    from torch import nn

    if kind == "mlp":
        return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    if kind == "wide":
        return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3),
        nn.ReLU(), nn.Flatten(), nn.Linear(512, 10),
    )  # fmt: skip


def optimizer_of(model: Any) -> Any:
    import torch

    return torch.optim.Adam(model.parameters(), lr=0.001)


def dataset() -> Any:
    import torch

    return torch.utils.data.TensorDataset(torch.randn(8192, 64), torch.randint(10, (8192,)))


def loader() -> Any:
    import torch

    return torch.utils.data.DataLoader(dataset(), batch_size=BATCH_SIZE, shuffle=True)


def loss_of(model: Any, batch: Any) -> Any:
    from torch.nn import functional

    return functional.cross_entropy(model(batch[0]), batch[1])


def forever(batches: Any) -> Iterator[Any]:
    while True:
        yield from batches


def plain(kind: str, period: int, turn: Callable[[], None]) -> None:
    model, batches = build(kind), loader()
    optimizer = optimizer_of(model)
    for batch in forever(batches):
        turn()
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()


def trial_of(pytorch: Any) -> Callable[..., None]:
    """det and the original share an API: the module is all that differs."""

    def train(kind: str, period: int, turn: Callable[[], None]) -> None:
        class Trial(pytorch.PyTorchTrial):
            def __init__(self, context: Any) -> None:
                self.context = context
                self.model = context.wrap_model(build(kind))
                self.optimizer = context.wrap_optimizer(optimizer_of(self.model))

            def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
                turn()
                loss = loss_of(self.model, batch)
                self.context.backward(loss)
                self.context.step_optimizer(self.optimizer)
                return {"loss": loss}

            def evaluate_batch(self, batch: Any) -> Any:
                return {"validation_loss": loss_of(self.model, batch)}

            def build_training_data_loader(self) -> Any:
                return pytorch.DataLoader(dataset(), batch_size=BATCH_SIZE, shuffle=True)

            build_validation_data_loader = build_training_data_loader

        with pytorch.init() as context:
            trainer = pytorch.Trainer(Trial(context), context)
            trainer.fit(max_length=pytorch.Batch(10**9), reporting_period=pytorch.Batch(period))

    return train


def det(kind: str, period: int, turn: Callable[[], None]) -> None:
    import det_torch

    trial_of(det_torch)(kind, period, turn)


def original(kind: str, period: int, turn: Callable[[], None]) -> None:
    from determined import pytorch

    trial_of(pytorch)(kind, period, turn)


def fabric(kind: str, period: int, turn: Callable[[], None]) -> None:
    from lightning.fabric import Fabric
    from lightning.fabric.loggers import TensorBoardLogger

    whole = Fabric(accelerator="cpu", devices=1, loggers=TensorBoardLogger("."))
    model = build(kind)
    model, optimizer = whole.setup(model, optimizer_of(model))
    for number, batch in enumerate(forever(whole.setup_dataloaders(loader()))):
        turn()
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        whole.backward(loss)
        optimizer.step()
        if number % period == 0:
            whole.log("loss", loss.item(), number)


def accelerate(kind: str, period: int, turn: Callable[[], None]) -> None:
    from accelerate import Accelerator

    whole = Accelerator(cpu=True, log_with="tensorboard", project_dir=".")
    whole.init_trackers("run")
    model = build(kind)
    model, optimizer, batches = whole.prepare(model, optimizer_of(model), loader())
    for number, batch in enumerate(forever(batches)):
        turn()
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        whole.backward(loss)
        optimizer.step()
        if number % period == 0:
            whole.log({"loss": loss.item()}, step=number)


def lightning(kind: str, period: int, turn: Callable[[], None]) -> None:
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.loggers import TensorBoardLogger

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = build(kind)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            turn()
            loss = loss_of(self.model, batch)
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return optimizer_of(self.model)

    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    trainer = Trainer(
        accelerator="cpu", devices=1, max_epochs=-1, log_every_n_steps=period, logger=TensorBoardLogger("."), **quiet
    )
    trainer.fit(Module(), loader())


TRAINERS = {f.__name__: f for f in (plain, det, original, fabric, accelerate, lightning)}
OURS = ("plain", "det")
"""Those that run in this environment; the others have one of their own."""


class Contender:
    """A process that trains, one round at each call."""

    def __init__(self, name: str, command: Sequence[str | Path], directory: Path) -> None:
        self.name = name
        home = directory / name
        home.mkdir(exist_ok=True)
        environment = {**os.environ, "DET_HOME": str(home / "det"), "XDG_DATA_HOME": str(home), "OMP_NUM_THREADS": "1"}
        with (home / "output").open("a") as output:
            self._process = subprocess.Popen(
                command,
                cwd=home,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
            )
        started = time.perf_counter()
        self._read()
        self.first_batch = time.perf_counter() - started

    def round(self) -> float:
        """Microseconds per batch."""
        assert self._process.stdin
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _read(self) -> float:
        assert self._process.stdout
        for line in self._process.stdout:  # what else is printed there is theirs
            try:
                return float(line)
            except ValueError:
                continue
        raise RuntimeError(f"{self.name} ended with {self._process.wait()}; see its output in its directory")


def contend(name: str, kind: str, period: int, directory: Path) -> Contender:
    from environments import programs

    python = sys.executable if name in OURS else programs("trainers") / "python"
    return Contender(name, [python, __file__, "--train", name, kind, str(period)], directory)


def compare(contenders: Sequence[Contender], title: str) -> None:
    """Let them take turns, and print the ratios to the first."""
    for contender in contenders:
        contender.round()  # warms up
    rounds = [[contender.round() for contender in contenders] for _ in range(ROUNDS)]
    for contender in contenders:
        contender.close()
    print(f"\n{title}: {ROUNDS} rounds")
    for index, contender in enumerate(contenders):
        times = [row[index] for row in rounds]
        ratio = statistics.median(row[index] / row[0] for row in rounds)
        print(
            f"  {contender.name:11}{statistics.median(times):8.1f} us/batch  x {contenders[0].name} {ratio:6.3f}",
            flush=True,
        )


def start(directory: Path) -> None:
    found: dict[str, list[float]] = {name: [] for name in TRAINERS}
    for _ in range(ROUNDS // 2):
        for name, times in found.items():
            contender = contend(name, "mlp", 100, directory)
            contender.close()
            times.append(contender.first_batch)
    print("\nstart of the process to its first batch")
    for name, times in found.items():
        ratio = statistics.median(time / base for time, base in zip(times, found["plain"], strict=True))
        print(f"  {name:11}{statistics.median(times):8.2f} s         x plain {ratio:6.3f}", flush=True)


def main() -> None:
    if sys.argv[1:2] == ["--train"]:
        import torch

        name, kind, period = sys.argv[2:]
        torch.set_num_threads(1)
        TRAINERS[name](kind, int(period), Turns(BATCHES[kind]))
        return
    with tempfile.TemporaryDirectory() as directory:
        for case in sys.argv[1:] or [*CASES, "start"]:
            if case == "start":
                start(Path(directory))
            else:
                kind, period = CASES[case]
                contenders = [contend(name, kind, period, Path(directory)) for name in TRAINERS]
                compare(contenders, f"{case}, {BATCHES[kind]} batches each")


if __name__ == "__main__":
    main()
