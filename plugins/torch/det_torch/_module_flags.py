"""Flags of modules and parameters that a trial may change during training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import torch

from det_torch._compiled import uncompiled_models

Flags: TypeAlias = list[dict[str, list[str]]]
"""For each model, the names of modules in evaluation mode and of parameters that require no gradient."""


def collect_flags(models: Sequence[torch.nn.Module]) -> Flags:
    """Return the current flags of each model."""
    with uncompiled_models(models) as bare:
        return [
            {
                "eval": [name for name, module in model.named_modules() if not module.training],
                "frozen": [name for name, parameter in model.named_parameters() if not parameter.requires_grad],
            }
            for model in bare
        ]


def list_frozen_modules(models: Sequence[torch.nn.Module]) -> list[str]:
    """Return the names of the outermost modules in evaluation mode within models that are in training mode."""
    return [
        f"models[{number}].{name}"
        for number, flags in enumerate(collect_flags(models))
        for name in flags["eval"]
        if "" not in flags["eval"] and name.rpartition(".")[0] not in flags["eval"]
    ]


def restore_flags(models: Sequence[torch.nn.Module], saved: Sequence[Mapping[str, Sequence[str]]]) -> None:
    """Restore flags that `collect_flags` returned for the same models."""
    with uncompiled_models(models) as bare:
        for model, of_model in zip(bare, saved, strict=True):
            evaluating, frozen = set(of_model["eval"]), set(of_model["frozen"])
            for name, module in model.named_modules():
                module.training = name not in evaluating
            for name, parameter in model.named_parameters():
                if parameter.requires_grad is (name in frozen):
                    parameter.requires_grad_(name not in frozen)


@contextmanager
def evaluation_mode(models: Sequence[torch.nn.Module]) -> Iterator[None]:
    """Put models into evaluation mode during the block. Modules that were in this mode before remain in it."""
    kept = [module for model in models for module in model.modules() if not module.training]
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for model in models:
            model.train()
        for module in kept:
            module.training = False
