"""The config block."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator

Precision: TypeAlias = Literal["float32", "bfloat16", "float16"]


class Options(BaseModel):
    """``backend: torch_distributed``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    find_unused_parameters: bool = False
    """Whether some batches may use a part of a model's parameters only; costs a walk over the graph in each."""
    broadcast_buffers: bool = False
    """Whether the chief's buffers are copied to all slots before every forward pass of training."""
    sync_batch_norm: bool = False
    """Whether BatchNorm normalizes over the batches of all slots. Requires GPUs."""
    sharding: Literal["none", "fsdp"] = "none"
    """Whether each slot has the whole of models and optimizers, or a part, by FSDP2."""
    units: list[str] = Field(default_factory=list)
    """With ``fsdp``: names of the classes of modules whose parameters are gathered and freed together."""
    param_dtype: Precision | None = None
    """With ``fsdp``: what forward and backward passes compute in; null: as the parameters are."""
    reduce_dtype: Precision | None = None
    """With ``fsdp``: what gradients are exchanged in; null: as ``param_dtype``."""

    @model_validator(mode="after")
    def _check_sharding(self) -> Options:
        sharded = {"units", "param_dtype", "reduce_dtype"}
        whole = {"broadcast_buffers", "find_unused_parameters", "sync_batch_norm"}
        if wrong := sorted(key for key in (whole if self.sharding == "fsdp" else sharded) if getattr(self, key)):
            raise ValueError(f"{', '.join(wrong)} has no meaning with `sharding: {self.sharding}`; remove it")
        return self
