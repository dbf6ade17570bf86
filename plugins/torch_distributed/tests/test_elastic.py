"""An elastic trial that loses slots and gets them back trains each record once, as an undisturbed one does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timezone
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import pytest

from det_core.config import parse_config
from det_core.interfaces.records import State
from det_core.launch.machine_slots import SlotReservation, reserve_slots
from det_core.runner import ExperimentRunner, submit_experiment
from det_core.tracking import open_store

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SLOTS, STEPS = 4, 60
RECORDS = 8 * STEPS
TRIAL = f"""
import os, signal, time
from pathlib import Path
import torch
from torch.nn import functional
from torch.utils.data import TensorDataset
from det_torch import DataLoader, PyTorchTrial

class Trial(PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.options = context.get_data_config()
        self.directory = Path(self.options["directory"])
        self.seen = 0
        model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).double()
        self.model = context.wrap_model(model)
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=0.01))
        inputs = torch.randn({RECORDS}, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        self.data = TensorDataset(inputs, inputs.sin().sum(1, keepdim=True), torch.arange({RECORDS}))

    def build_training_data_loader(self):
        return DataLoader(self.data, batch_size=self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self):
        return DataLoader(self.data, batch_size=self.context.get_per_slot_batch_size())

    def train_batch(self, batch, epoch_idx, batch_idx):
        inputs, targets, numbers = batch
        slots = self.context.distributed
        with (self.directory / f"records-{{slots.rank}}").open("a") as file:
            print(batch_idx, slots.size, *numbers.tolist(), file=file)
        self.seen += 1
        if self.options["disturbed"]:
            self.disturb(batch_idx, slots)
        loss = functional.mse_loss(self.model(inputs), targets)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {{"loss": loss}}

    def disturb(self, batch_idx, slots):
        two = self.directory / "two"
        mark = self.directory / ("second" if two.exists() else "first")
        is_after_a_checkpoint = batch_idx % 6 == 3 and self.seen > 8
        if slots.size == 4 and slots.rank == 1 and is_after_a_checkpoint and not mark.exists():
            mark.touch()
            while not Path(f"{{mark}}_taken").exists():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
        if slots.size == 2:
            two.touch()
            time.sleep(0.2)

    def evaluate_batch(self, batch):
        return {{"validation_loss": functional.mse_loss(self.model(batch[0]), batch[1]).item()}}
"""


def train(directory: Path, options: dict[str, Any], *, disturbed: bool) -> list[tuple[float, ...]]:
    """Train a trial to its end, and return the losses of all batches and of the validation."""
    directory.mkdir()
    (directory / "code").mkdir()
    (directory / "code" / "model_def.py").write_text(TRIAL)
    elastic = {"min_slots_per_trial": 1, "elastic_timeout": 1} if disturbed else {}
    config = parse_config(
        {
            "name": "elastic",
            "entrypoint": "model_def:Trial",
            "hyperparameters": {"global_batch_size": RECORDS // STEPS},
            "searcher": {"name": "single", "metric": "validation_loss", "max_length": {"epochs": 1}},
            "scheduling_unit": 6,
            "min_checkpoint_period": {"batches": 6},
            "reproducibility": {"experiment_seed": 3},
            "resources": {"slots_per_trial": SLOTS, **elastic},
            "launcher": {"type": "local", "slots": SLOTS},
            "distributed": {"backend": "torch_distributed", **options},
            "data": {"directory": str(directory), "disturbed": disturbed},
        }
    )
    with open_store() as store:
        experiment = submit_experiment(store, config, directory / "code")
        state = ExperimentRunner(store, experiment.id).run()
        (trial,) = store.trials(experiment.id)
        print(*(f"[{line.rank}] {line.log}" for line in store.logs(trial.id)), sep="\n")
        assert state is State.COMPLETED
        reports = [*store.metrics(trial.id)]
    rows = [row for report in reports for row in report.batch_metrics or [report.metrics]]
    return [tuple(float(value) for value in row.values()) for row in rows]


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 200
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def take_slots(directory: Path, mark: str, count: int) -> SlotReservation:
    """Go before the trial in the queue, and take slots when its worker has been killed."""
    wait_for((directory / mark).exists)
    names = [f"cpu-{index}" for index in range(SLOTS)]
    taken = reserve_slots(names, count, priority=1, submitted=datetime.now(timezone.utc))
    assert taken.poll() is None
    (directory / f"{mark}_taken").touch()
    wait_for(taken.poll)
    return taken


@pytest.mark.parametrize("options", [{}, {"sharding": "fsdp"}], ids=["ddp", "fsdp"])
def test_an_elastic_trial_trains_what_an_undisturbed_one_does(
    tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Train one epoch in double precision on 4, 2, 4 and 1 slots."""
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DET_SLOTS_DIR", str(tmp_path / "slots"))
    expected = train(tmp_path / "calm", options, disturbed=False)
    directory, ended = tmp_path / "elastic", threading.Event()

    def disturb() -> None:
        with closing(take_slots(directory, "first", 2)):
            wait_for((directory / "two").exists)
        with closing(take_slots(directory, "second", 3)):
            wait_for(ended.is_set)

    others = threading.Thread(target=disturb, daemon=True)
    others.start()
    try:
        losses = train(directory, options, disturbed=True)
    finally:
        ended.set()
        others.join(60)
    assert len(losses) == len(expected) == STEPS + 1
    for own, other in zip(losses, expected, strict=True):
        assert own == pytest.approx(other, rel=1e-10, abs=0)
    sizes: dict[int, int] = {}
    trained: dict[tuple[int, int, int], list[int]] = {}
    for rank in reversed(range(SLOTS)):
        for line in (directory / f"records-{rank}").read_text().splitlines():
            step, size, *records = map(int, line.split())
            trained[step, size, rank] = records
            sizes[step] = size  # in the end that of rank 0, which trains on any number of slots
    assert [size for size, _ in groupby(sizes[step] for step in range(STEPS))] == [4, 2, 4, 1]
    kept = [trained[step, size, rank] for step, size in sizes.items() for rank in range(size)]
    assert sorted(chain.from_iterable(kept)) == list(range(RECORDS))
