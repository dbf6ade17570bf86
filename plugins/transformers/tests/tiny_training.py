"""Training of a language model with 400 weights and dropout."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from det_transformers import DetCallback
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from det_core import core

STEPS_PER_EPOCH = 5
_MODEL = GPT2Config(vocab_size=11, n_positions=6, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)


class Killed(Exception):
    """End of a process, after which only the stored checkpoints are left."""


def records(count: int = 20) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    rows = torch.randint(11, (count, 6), generator=generator)
    return [{"input_ids": row[: 3 + number % 4], "labels": row[: 3 + number % 4]} for number, row in enumerate(rows)]


def pad(samples: Sequence[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    return {
        name: torch.nn.utils.rnn.pad_sequence([sample[name] for sample in samples], True, padding_value=value)
        for name, value in (("input_ids", 0), ("labels", -100))
    }


class KillAt(TrainerCallback):
    """Callback that ends a process after the evaluations, reports and checkpoint of a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.step:
            raise Killed


class StopAt(TrainerCallback):
    """Callback that requests the trial to stop during a step."""

    def __init__(self, step: int, core_context: core.Context) -> None:
        self.step, self.core = step, core_context

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step + 1 == self.step:
            self.core.preempt._request("test")


@dataclass
class Training:
    """One process that trains.

    Args:
        arguments: arguments of the ``Trainer`` that differ.
        kill_at: step after which it is killed.
        stop_at: step during which it is asked to stop.
    """

    arguments: dict[str, Any] = field(default_factory=dict)
    kill_at: int | None = None
    stop_at: int | None = None
    callback: dict[str, Any] = field(default_factory=dict)
    more: Callable[[core.Context], list[TrainerCallback]] = lambda _: []
    trainer: Trainer | None = None

    def run(self, core_context: core.Context, directory: Path) -> None:
        random.seed()  # whatever happens before must not matter
        torch.seed()
        args = TrainingArguments(
            **{
                "output_dir": str(directory),
                "per_device_train_batch_size": 4,
                "learning_rate": 0.01,
                "lr_scheduler_type": "cosine",
                "eval_strategy": "epoch",
                "logging_steps": 2,
                "save_steps": 1,
                "save_total_limit": 1,
                "use_cpu": True,
                "disable_tqdm": True,
                "seed": 3,
                **self.arguments,
            }
        )
        callbacks: list[TrainerCallback] = [DetCallback(core_context, args, **self.callback)]
        callbacks += [KillAt(self.kill_at)] if self.kill_at is not None else []
        callbacks += [StopAt(self.stop_at, core_context)] if self.stop_at else []
        torch.manual_seed(3)
        data = {"train_dataset": records(), "eval_dataset": records(8), "data_collator": pad}
        self.trainer = Trainer(GPT2LMHeadModel(_MODEL), args, callbacks=callbacks + self.more(core_context), **data)
        self.trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)

    @property
    def result(self) -> dict[str, Any]:
        """Everything that must not differ."""
        assert self.trainer
        return {
            "model": self.trainer.model.state_dict(),
            "optimizer": self.trainer.optimizer.state_dict(),
            "schedule": self.trainer.lr_scheduler.state_dict(),
            "log": [
                {name: value for name, value in entry.items() if not name.endswith(("_runtime", "_per_second"))}
                for entry in self.trainer.state.log_history[:-1]
            ],
        }
