"""What a checkpoint says about the trial that saved it, so that `det_torch.load` can build it again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from det_core.core import Context
from det_torch._trial import PyTorchTrial

FILE = "load_data.json"


def describe(trial_class: type[PyTorchTrial], core: Context) -> dict[str, Any]:
    """The class by name, its hyperparameters and the config; secrets stay references, as in the record."""
    return {
        "trial_type": "PyTorchTrial",
        "trial_cls_spec": f"{trial_class.__module__}:{trial_class.__qualname__}",
        "hparams": core.trial.hparams,
        "experiment_config": core.trial.config,
    }


def write(description: Mapping[str, Any], path: Path) -> None:
    (path / FILE).write_text(json.dumps(description, indent=2))


def read(path: Path) -> dict[str, Any] | None:
    """What a checkpoint says; None: nothing."""
    file = path / FILE
    if not file.exists():
        return None
    description: dict[str, Any] = json.loads(file.read_text())
    return description
