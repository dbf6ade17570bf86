"""The ``Trainer`` of Hugging Face alone and with det's callback: what a resume repeats exactly, and what it costs.

    python benchmarks/hugging_face.py

A language model with 400 weights is trained for two epochs of four steps. It is killed after steps 2, 3, 4 and 6, and
continues from its latest checkpoint, in one directory with the ``Trainer`` alone and in det's storage with the
callback. The table says what equals a training that nothing interrupted, bit for bit.

Costs are CPU times of all threads in this process per step, as the lowest of the rounds, in which both take turns.
They are those of such a small model, so ratios are upper bounds.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "DET_QUIET": "1", "OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "plugins" / "transformers" / "tests"))

from tiny_training import Killed, Training
from transformers.trainer_utils import get_last_checkpoint

from det_core import core

KILLS = (2, 3, 4, 6)
ROUNDS = 5
STEPS = 100
CASES: dict[str, dict[str, Any]] = {
    "default order, a checkpoint after each step": {},
    "order of group_by_length": {"train_sampling_strategy": "group_by_length"},
    "a loss every second step, a checkpoint every third": {"save_steps": 3},
}
PARTS = ("weights", "optimizer", "validations", "losses")


class Alone(Training):
    """Training without det."""

    def run_alone(self, directory: Path) -> None:
        args = self.prepare(directory)
        self.train(args, [], get_last_checkpoint(str(directory)) if directory.exists() else None)


def train_alone(arguments: dict[str, Any], kills: Sequence[int], directory: Path) -> Training:
    for kill_at in kills:
        with suppress(Killed):
            Alone(arguments, kill_at=kill_at).run_alone(directory)
    (training := Alone(arguments)).run_alone(directory)
    return training


def train_with_det(arguments: dict[str, Any], kills: Sequence[int], directory: Path) -> Training:
    os.environ["DET_HOME"] = str(directory / "home")
    config = {"searcher": {"metric": "eval_loss", "name": "single", "max_length": {"epochs": 2}}}
    resume = None
    for kill_at in (*kills, None):
        training = Training(arguments, kill_at=kill_at)
        with suppress(Killed), core.init(config=config, resume=resume) as core_context:
            resume = core_context.trial.experiment_id
            training.run(core_context, directory / "output")
    return training


def result(training: Training) -> dict[str, Any]:
    log = training.trainer.state.log_history
    return {
        "weights": training.weights,
        "optimizer": training.optimizer,
        "validations": [(entry["step"], entry["eval_loss"]) for entry in log if "eval_loss" in entry],
        "losses": [(entry["step"], entry["loss"]) for entry in log if "loss" in entry],
    }


def compare(train: Callable[..., Training], arguments: dict[str, Any]) -> list[str]:
    results = []
    for kills in ((), KILLS):
        with tempfile.TemporaryDirectory() as directory:
            results.append(result(train(arguments, kills, Path(directory, "run"))))
    return ["equal" if results[0][part] == results[1][part] else "DIFFERENT" for part in PARTS]


def cost(train: Callable[..., Training], saves: bool) -> float:
    arguments = {"max_steps": STEPS, "eval_strategy": "no", "logging_steps": 10, "save_steps": 1 if saves else STEPS}
    with tempfile.TemporaryDirectory() as directory:
        start = time.process_time()
        train(arguments, (), Path(directory, "run"))
        return (time.process_time() - start) / STEPS * 1e3


def main() -> None:
    logging.disable(logging.WARNING)
    trainers = {"Trainer alone": train_alone, "with det": train_with_det}
    print(f"{'after four kills':52} {'':14}", *(f"{part:12}" for part in PARTS))
    for case, arguments in CASES.items():
        arguments = {"num_train_epochs": 2, **arguments}
        for name, train in trainers.items():
            with redirect_stdout(sys.stderr):
                parts = compare(train, arguments)
            print(f"{case:52} {name:14}", *(f"{part:12}" for part in parts), flush=True)
    for what, saves in (("a step", False), ("a step with a checkpoint", True)):
        with redirect_stdout(sys.stderr):
            rounds = [[cost(train, saves) for train in trainers.values()] for _ in range(ROUNDS)]
        alone, with_det = map(min, zip(*rounds, strict=True))
        print(f"{what}: {alone:.2f} ms alone, {with_det:.2f} ms with det, CPU time", flush=True)


if __name__ == "__main__":
    main()
