"""Time per batch of several training loops, compared with a plain PyTorch loop over the same model.

    python benchmarks/trainers.py [mlp-100 | mlp-100-scheduler | 1ms-100 | mlp-1 | cnn-100 | cnn-1 | start ...]

A plain loop, Ignite, det, the system that det replaces, Lightning, Fabric and Accelerate train the same model on the
same data in separate processes. They take turns. While one trains a round of batches, the others wait. ``mlp-100``
reports the loss of every hundredth batch, also to TensorBoard. There, det and the original report the losses of all
hundred batches together. ``mlp-1`` reports the loss of every batch. The plain loop reports nothing.
``mlp-100-scheduler`` also steps a learning rate scheduler. ``1ms-100`` trains a model whose step takes about a
millisecond.

CPU time is that of all threads of a process until the reports of the round are written. The first ratio of CPU times is
that of the fastest rounds, and the second one is the median over rounds. The ratio of wall-clock times is a median. On
a busy machine, only ratios of CPU time are meaningful. ``start`` is the time from the start of the process to its first
batch.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROUNDS = 15
BATCH_SIZE = 32
WRITING = 0.4
"""Time in seconds after a round in which det writes its last reports, after it has waited 0.2 s for more of them."""


@dataclass(frozen=True)
class Case:
    """A model, the period of its reports, and the number of batches in a round."""

    kind: str
    period: int
    batches: int
    schedules: bool = False
    goal: float | None = None
    """Maximum ratio of det's CPU time per batch to that of the plain loop."""


CASES = {
    "mlp-100": Case("mlp", 100, 2000, goal=1.08),
    "mlp-100-scheduler": Case("mlp", 100, 2000, schedules=True, goal=1.08),
    "1ms-100": Case("wide", 100, 500, goal=1.02),
    "mlp-1": Case("mlp", 1, 1000),
    "cnn-100": Case("cnn", 100, 300),
    "cnn-1": Case("cnn", 1, 300),
}


class Turns:
    """Function to call before every batch. After a round it prints times per batch and waits for its next turn.

    Args:
        batches: number of batches in a round.
        writing: seconds after a round in which CPU time counts as the round's.
    """

    def __init__(self, batches: int, writing: float = 0.0) -> None:
        self._batches = batches
        self._writing = writing
        self._count = -1
        self._start = self._cpu = 0.0

    def __call__(self) -> None:
        self._count += 1
        if self._count % self._batches:
            return
        wall = time.perf_counter() - self._start
        time.sleep(self._writing)
        cpu = time.process_time() - self._cpu
        print(wall / self._batches * 1e6, cpu / self._batches * 1e6, flush=True)
        if not sys.stdin.readline():
            os._exit(0)
        self._start, self._cpu = time.perf_counter(), time.process_time()


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


def scheduler_of(optimizer: Any) -> Any:
    import torch

    return torch.optim.lr_scheduler.StepLR(optimizer, 1000)


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


def plain(case: Case, turn: Callable[[], None]) -> None:
    model, batches = build(case.kind), loader()
    optimizer = optimizer_of(model)
    scheduler = scheduler_of(optimizer) if case.schedules else None
    for batch in forever(batches):
        turn()
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
        if scheduler:
            scheduler.step()


def ignite(case: Case, turn: Callable[[], None]) -> None:
    from ignite.engine import Events, create_supervised_trainer
    from ignite.handlers import TensorboardLogger
    from ignite.utils import convert_tensor
    from torch.nn import functional

    def prepare(batch: Any, device: Any, non_blocking: bool) -> Any:
        turn()
        return tuple(convert_tensor(tensor, device=device, non_blocking=non_blocking) for tensor in batch)

    model = build(case.kind)
    optimizer = optimizer_of(model)
    trainer = create_supervised_trainer(model, optimizer, functional.cross_entropy, device="cpu", prepare_batch=prepare)
    if case.schedules:
        scheduler = scheduler_of(optimizer)
        trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda: scheduler.step())
    logger = TensorboardLogger(log_dir=".")
    every = Events.ITERATION_COMPLETED(every=case.period)
    logger.attach_output_handler(trainer, every, tag="training", output_transform=lambda loss: {"loss": loss})
    trainer.run(loader(), max_epochs=10**9)


def trial_of(pytorch: Any) -> Callable[..., None]:
    """Return a function that trains with the API that det and the original share.

    Args:
        pytorch: the module with the API, which is all that differs.
    """

    def train(case: Case, turn: Callable[[], None]) -> None:
        class Trial(pytorch.PyTorchTrial):
            def __init__(self, context: Any) -> None:
                self.context = context
                self.model = context.wrap_model(build(case.kind))
                self.optimizer = context.wrap_optimizer(optimizer_of(self.model))
                if case.schedules:
                    every_batch = pytorch.LRScheduler.StepMode.STEP_EVERY_BATCH
                    context.wrap_lr_scheduler(scheduler_of(self.optimizer), every_batch)

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
            trainer.fit(max_length=pytorch.Batch(10**9), reporting_period=pytorch.Batch(case.period))

    return train


def det(case: Case, turn: Callable[[], None]) -> None:
    import det_torch

    trial_of(det_torch)(case, turn)


def original(case: Case, turn: Callable[[], None]) -> None:
    from determined import pytorch

    trial_of(pytorch)(case, turn)


def fabric(case: Case, turn: Callable[[], None]) -> None:
    from lightning.fabric import Fabric
    from lightning.fabric.loggers import TensorBoardLogger

    whole = Fabric(accelerator="cpu", devices=1, loggers=TensorBoardLogger("."))
    model = build(case.kind)
    optimizer = optimizer_of(model)
    scheduler = scheduler_of(optimizer) if case.schedules else None
    model, optimizer = whole.setup(model, optimizer)
    for number, batch in enumerate(forever(whole.setup_dataloaders(loader()))):
        turn()
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        whole.backward(loss)
        optimizer.step()
        if scheduler:
            scheduler.step()
        if number % case.period == 0:
            whole.log("loss", loss.item(), number)


def accelerate(case: Case, turn: Callable[[], None]) -> None:
    from accelerate import Accelerator

    whole = Accelerator(cpu=True, log_with="tensorboard", project_dir=".")
    whole.init_trackers("run")
    model = build(case.kind)
    model, optimizer, batches = whole.prepare(model, optimizer_of(model), loader())
    scheduler = whole.prepare(scheduler_of(optimizer)) if case.schedules else None
    for number, batch in enumerate(forever(batches)):
        turn()
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        whole.backward(loss)
        optimizer.step()
        if scheduler:
            scheduler.step()
        if number % case.period == 0:
            whole.log({"loss": loss.item()}, step=number)


def lightning(case: Case, turn: Callable[[], None]) -> None:
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.loggers import TensorBoardLogger

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = build(case.kind)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            turn()
            loss = loss_of(self.model, batch)
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            optimizer = optimizer_of(self.model)
            if not case.schedules:
                return optimizer
            return [optimizer], [{"scheduler": scheduler_of(optimizer), "interval": "step"}]

    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    trainer = Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=-1,
        log_every_n_steps=case.period,
        logger=TensorBoardLogger("."),
        **quiet,
    )
    trainer.fit(Module(), loader())


TRAINERS = {f.__name__: f for f in (plain, ignite, det, fabric, original, accelerate, lightning)}
OURS = ("plain", "det")
"""Trainers that run in this environment. The others run in the environment ``trainers``."""


class Contender:
    """Process that trains one round at each call.

    Args:
        name: name of the trainer.
        command: command of the process.
        directory: directory below which the process has its working directory.
    """

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

    def round(self) -> tuple[float, float]:
        """Train one round, and return the wall-clock and the CPU microseconds per batch."""
        assert self._process.stdin
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _read(self) -> tuple[float, float]:
        assert self._process.stdout
        for line in self._process.stdout:  # other lines are output of the trainers
            try:
                wall, cpu = map(float, line.split())
            except ValueError:
                continue
            return wall, cpu
        raise RuntimeError(f"{self.name} ended with {self._process.wait()}; see its output in its directory")


def contend(name: str, case: str, directory: Path) -> Contender:
    from environments import programs

    python = sys.executable if name in OURS else programs("trainers") / "python"
    return Contender(name, [python, __file__, "--train", name, case], directory)


def compare(contenders: Sequence[Contender], title: str, *, goal: float | None = None) -> None:
    """Let the contenders take turns, and print their times and ratios to the first one.

    Args:
        contenders: the processes, which are closed at the end.
        title: heading of the table.
        goal: maximum ratio of CPU times for det.
    """
    for contender in contenders:
        contender.round()  # the warm-up
    rounds = [[contender.round() for contender in contenders] for _ in range(ROUNDS)]
    for contender in contenders:
        contender.close()
    print(f"\n{title}: {ROUNDS} rounds, us per batch and ratios to {contenders[0].name}")
    print(f"  {'':11}{'CPU, fastest':>14}{'ratio':>8}{'median':>8}{'wall, median':>14}{'ratio':>8}")
    for contender, times in zip(contenders, zip(*rounds, strict=True), strict=True):
        walls, cpus = zip(*times, strict=True)
        first_walls, first_cpus = zip(*(row[0] for row in rounds), strict=True)
        print(
            f"  {contender.name:11}{min(cpus):14.1f}{min(cpus) / min(first_cpus):8.3f}{_median(cpus, first_cpus):8.3f}"
            f"{statistics.median(walls):14.1f}{_median(walls, first_walls):8.3f}"
            + (f"  goal {goal}" if goal and contender.name == "det" else ""),
            flush=True,
        )


def _median(times: Sequence[float], base: Sequence[float]) -> float:
    """Return the median over rounds of the ratio to another contender's times."""
    return statistics.median(time / other for time, other in zip(times, base, strict=True))


def start(directory: Path) -> None:
    found: dict[str, list[float]] = {name: [] for name in TRAINERS}
    for _ in range(ROUNDS // 2):
        for name, times in found.items():
            contender = contend(name, "mlp-100", directory)
            contender.close()
            times.append(contender.first_batch)
    print("\nstart of the process to its first batch")
    for name, times in found.items():
        ratio = statistics.median(time / base for time, base in zip(times, found["plain"], strict=True))
        print(f"  {name:11}{statistics.median(times):8.2f} s         x plain {ratio:6.3f}", flush=True)


def main() -> None:
    if sys.argv[1:2] == ["--train"]:
        import torch

        name, case = sys.argv[2], CASES[sys.argv[3]]
        torch.set_num_threads(1)
        TRAINERS[name](case, Turns(case.batches, WRITING))
        return
    with tempfile.TemporaryDirectory() as directory:
        for title in sys.argv[1:] or [*CASES, "start"]:
            if title == "start":
                start(Path(directory))
            else:
                case = CASES[title]
                contenders = [contend(name, title, Path(directory)) for name in TRAINERS]
                compare(contenders, f"{title}, {case.batches} batches each", goal=case.goal)


if __name__ == "__main__":
    main()
