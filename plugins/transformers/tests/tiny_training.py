"""Training of a language model with 400 weights and dropout."""

from __future__ import annotations

import random
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from det_testing.comparison import bitwise_form
from det_transformers import DetCallback
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from det_core import core

STEPS_PER_EPOCH = 4
MODEL = GPT2Config(vocab_size=11, n_positions=6, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)


ARGUMENTS = {
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
}


class Killed(Exception):
    """End of a process, after which only the stored checkpoints are left."""


def records(count: int) -> list[dict[str, torch.Tensor]]:
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

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step + 1 == self.step:
            signal.raise_signal(signal.SIGTERM)


class Training:
    """One process that trains.

    Args:
        arguments: arguments of the ``Trainer`` that differ.
        kill_at: step after which it is killed.
        stop_at: step during which it is asked to stop.
        resumes: whether the ``Trainer`` gets the directory of the latest checkpoint.
        callback: arguments of the callback.
        more: further callbacks.
    """

    trainer: Trainer

    def __init__(
        self,
        arguments: Mapping[str, Any] | None = None,
        *,
        kill_at: int | None = None,
        stop_at: int | None = None,
        resumes: bool = True,
        callback: Mapping[str, Any] | None = None,
        more: Sequence[TrainerCallback] = (),
    ) -> None:
        self._arguments = {**ARGUMENTS, **(arguments or {})}
        self._kill_at, self._stop_at, self._resumes = kill_at, stop_at, resumes
        self._callback, self._more = callback or {}, more

    def run(self, core_context: core.Context, directory: Path) -> None:
        args = self.prepare(directory)
        callbacks: list[TrainerCallback] = [DetCallback(core_context, args, **self._callback)]
        callbacks += [StopAt(self._stop_at)] if self._stop_at is not None else []
        self.train(args, callbacks, args.resume_from_checkpoint if self._resumes else None)

    def prepare(self, directory: Path) -> TrainingArguments:
        random.seed()  # whatever happens before must not matter
        torch.seed()
        return TrainingArguments(output_dir=str(directory), **self._arguments)

    def train(self, args: TrainingArguments, callbacks: Sequence[TrainerCallback], checkpoint: str | None) -> None:
        killers = [KillAt(self._kill_at)] if self._kill_at is not None else []
        torch.manual_seed(3)
        data = {"train_dataset": records(4 * STEPS_PER_EPOCH), "eval_dataset": records(8), "data_collator": pad}
        model = GPT2LMHeadModel(MODEL)
        self.trainer = Trainer(model, args, callbacks=[*callbacks, *self._more, *killers], **data)
        self.trainer.train(resume_from_checkpoint=checkpoint)

    @property
    def weights(self) -> Any:
        return bitwise_form(self.trainer.model.state_dict())

    @property
    def optimizer(self) -> Any:
        return bitwise_form([self.trainer.optimizer.state_dict(), self.trainer.lr_scheduler.state_dict()])
