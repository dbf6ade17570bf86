"""The config block."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Options(BaseModel):
    """``backend: deepspeed``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ds_config: Path | dict[str, Any] = Field(default_factory=dict)
    """DeepSpeed's own config: a JSON file, relative to the experiment's directory, or the same as a block."""
    overwrites: dict[str, Any] = Field(default_factory=dict)
    """Merged over ``ds_config``: a block into the block of its name, anything else in place of what is there."""
