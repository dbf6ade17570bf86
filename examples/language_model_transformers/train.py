"""GPT-2, with few layers, that predicts the next character of Python's own manual."""

from __future__ import annotations

from pydoc_data.topics import topics

import torch
from det_transformers import DetCallback
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import det_core as det

SYMBOLS = 128  # ASCII; other characters become question marks
LENGTH = 64  # number of characters in a window


def main(core_context: det.core.Context) -> None:
    hparams = core_context.trial.hparams
    args = TrainingArguments(
        output_dir="checkpoints",
        per_device_train_batch_size=hparams.get("batch_size", 16),
        learning_rate=hparams.get("lr", 0.002),
        warmup_steps=20,
        lr_scheduler_type="cosine",
        max_steps=300,  # of a run without a config, whose searcher.max_length takes precedence
        logging_steps=20,
        eval_strategy="steps",
        eval_steps=50,
        save_steps=50,
        save_total_limit=1,  # on this disk; the config says how many checkpoints det keeps
        disable_tqdm=True,
        seed=core_context.trial.trial_seed,
    )
    callback = DetCallback(core_context, args)
    training, validation = manual()
    config = GPT2Config(vocab_size=SYMBOLS, n_positions=LENGTH, n_embd=64, n_layer=2, n_head=4)
    torch.manual_seed(args.seed)
    trainer = Trainer(
        GPT2LMHeadModel(config), args, train_dataset=training, eval_dataset=validation, callbacks=[callback]
    )
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)


def manual() -> tuple[list[dict[str, torch.Tensor]], list[dict[str, torch.Tensor]]]:
    """Return nine tenths of the text for training and one for validation, as windows of `LENGTH` characters."""
    paragraphs = list(dict.fromkeys("\n\n".join(topics.values()).split("\n\n")))  # many topics repeat whole sections
    validation = paragraphs[::10]
    del paragraphs[::10]
    return windows_of(paragraphs), windows_of(validation)


def windows_of(paragraphs: list[str]) -> list[dict[str, torch.Tensor]]:
    text = torch.tensor(list("\n\n".join(paragraphs).encode("ascii", "replace")))
    windows = text[: len(text) // LENGTH * LENGTH].view(-1, LENGTH)
    return [{"input_ids": window, "labels": window} for window in windows]


if __name__ == "__main__":
    with det.core.init() as core_context:
        main(core_context)
