"""The config block."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Options(BaseModel):
    """``backend: torch_distributed``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    find_unused_parameters: bool = False
    """Whether some batches may use a part of a model's parameters only; costs a walk over the graph in each."""
