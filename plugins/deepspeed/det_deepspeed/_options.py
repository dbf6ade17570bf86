"""Config block of the backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class DeepSpeedOptions(BaseModel):
    """Options of the backend ``deepspeed``, in the config's block ``distributed``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ds_config: Path | dict[str, Any] = Field(
        default_factory=dict, examples=[{"zero_optimization": {"stage": 2}}, "ds_config.json"]
    )
    """DeepSpeed's own config, as the path of a JSON file relative to the experiment's directory, or as a block."""
    overwrites: dict[str, Any] = Field(default_factory=dict, examples=[{"zero_optimization": {"stage": 3}}])
    """Block merged into ``ds_config``. Nested blocks are merged recursively, and other values are replaced."""
