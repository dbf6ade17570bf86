"""``context.env`` of earlier releases."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class OldEnvironment(SimpleNamespace):
    """Facts about a trial that code in old checkpoints reads, and may set. Setting them has no effect."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"context.env has no attribute {name!r}; it has {', '.join(sorted(vars(self)))}. Use the methods of the "
            "context instead, such as get_hparams() and get_experiment_config()",
            name=name,
            obj=self,
        )
