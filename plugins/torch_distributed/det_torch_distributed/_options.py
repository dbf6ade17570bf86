"""Model of the ``distributed`` config block."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator

Precision: TypeAlias = Literal["float32", "bfloat16", "float16"]


class TorchDistributedOptions(BaseModel):
    """Options of the ``torch_distributed`` backend."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    find_unused_parameters: bool = False
    """Whether some batches may use only a part of a model's parameters. This costs a walk over the graph per batch."""
    broadcast_buffers: bool = False
    """Whether the chief's buffers are copied to all slots before every forward pass of training."""
    sync_batch_norm: bool = False
    """Whether BatchNorm normalizes over the batches of all slots. Requires GPUs."""
    sharding: Literal["none", "fsdp"] = "none"
    """Distribution of models and optimizers. With ``none`` each slot has all of them, with ``fsdp`` a part (FSDP2)."""
    units: list[str] = Field(default_factory=list, examples=[["TransformerBlock"]])
    """Class names of modules whose parameters are gathered and freed together. Valid with ``fsdp`` only."""
    param_dtype: Precision | None = None
    """Data type of forward and backward passes, null for that of the parameters. Valid with ``fsdp`` only."""
    reduce_dtype: Precision | None = None
    """Data type of exchanged gradients, null for ``param_dtype``. Valid with ``fsdp`` only."""

    @model_validator(mode="after")
    def _check_sharding(self) -> TorchDistributedOptions:
        sharded = {"units", "param_dtype", "reduce_dtype"}
        whole = {"broadcast_buffers", "find_unused_parameters", "sync_batch_norm"}
        if wrong := sorted(key for key in (whole if self.sharding == "fsdp" else sharded) if getattr(self, key)):
            raise ValueError(f"{', '.join(wrong)} has no meaning with `sharding: {self.sharding}`; remove it")
        return self
