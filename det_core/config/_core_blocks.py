"""Config blocks without plugins."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, GetJsonSchemaHandler, ValidationInfo, field_validator, model_validator
from pydantic_core import CoreSchema, PydanticCustomError

from det_core.config._block import Block, Count, Flag, Ignored, Number, Positive, Whole


def _is_pair(variable: str) -> str:
    if variable.find("=") < 1:
        raise PydanticCustomError("variable", "expected KEY=VALUE")
    return variable


_Variables = tuple[Annotated[str, AfterValidator(_is_pair)], ...]


class BindMount(Block):
    """Directory of the host that is mounted in containers. It has no effect, because there are no containers."""

    host_path: str
    container_path: str
    read_only: Flag = False
    propagation: str = "rprivate"


class EnvironmentVariables(Block):
    """Environment variables as ``KEY=VALUE`` strings, by device. A plain list applies to all devices."""

    cpu: _Variables = ()
    cuda: _Variables = ()
    rocm: _Variables = ()

    @model_validator(mode="before")
    @classmethod
    def _spread(cls, data: Any) -> Any:
        if isinstance(data, list):
            return dict.fromkeys(cls.model_fields, data)
        if isinstance(data, dict) and "gpu" in data:  # name of cuda in releases before 0.17
            return {"cuda": data["gpu"], **{device: value for device, value in data.items() if device != "gpu"}}
        return data

    def for_device(self, device: Literal["cpu", "cuda", "rocm"]) -> dict[str, str]:
        """Return the environment variables of a process that trains on this device."""
        pairs: tuple[str, ...] = getattr(self, device)
        return dict(pair.split("=", 1) for pair in pairs)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [handler(schema), {"type": "array", "items": {"type": "string"}}]}


class EnvironmentConfig(Block):
    """Environment of the processes of a trial."""

    environment_variables: EnvironmentVariables = EnvironmentVariables()
    image: Ignored[str | dict[str, str] | None] = None
    force_pull_image: Ignored[Flag] = False
    registry_auth: Ignored[dict[str, Any] | None] = None
    ports: Ignored[dict[str, Whole]] = Field(default_factory=dict)
    proxy_ports: Ignored[tuple[dict[str, Any], ...]] = ()
    add_capabilities: Ignored[tuple[str, ...]] = ()
    drop_capabilities: Ignored[tuple[str, ...]] = ()
    pod_spec: Ignored[dict[str, Any] | None] = None


class OptimizationsConfig(Block):
    """Options of gradient aggregation, communication and mixed precision."""

    aggregation_frequency: Positive = 1
    """Number of batches per optimizer step."""
    average_aggregated_gradients: Flag = True
    """Whether to divide aggregated gradients by ``aggregation_frequency``."""
    average_training_metrics: Flag = True
    """Whether to report the mean of the training metrics of all workers, instead of those of the chief."""
    gradient_compression: Flag = False
    """Whether workers exchange gradients as float16."""
    mixed_precision: Literal["O0", "O1", "O2", "O3"] = "O0"
    tensor_fusion_threshold: Count = 64
    """Maximum size in MiB of the gradients that Horovod exchanges at once."""
    tensor_fusion_cycle_time: Count = 1
    """Milliseconds between two exchanges of Horovod."""
    auto_tune_tensor_fusion: Flag = False
    grad_updates_size_file: Ignored[str | None] = None


class ProfilingConfig(Block):
    """Profiling of the hosts of a trial."""

    enabled: Flag = False
    """Whether the load of each host is recorded while the trial trains."""
    begin_on_batch: Ignored[Count] = 0
    end_after_batch: Ignored[Count | None] = None
    sync_timings: Ignored[Flag] = True

    @field_validator("end_after_batch")
    @classmethod
    def _ends_after_it_begins(cls, end: int | None, info: ValidationInfo) -> int | None:
        begin = info.data.get("begin_on_batch", 0)
        if end is not None and end < begin:
            raise PydanticCustomError("range", "expected a batch >= begin_on_batch, which is {begin}", {"begin": begin})
        return end


class ReproducibilityConfig(Block):
    """Random seed of the experiment, by default the time of submission.

    The dumped config contains the seed, so a resumed experiment keeps it.
    """

    experiment_seed: Annotated[Count, Field(le=2**32 - 1)] = Field(default_factory=lambda: int(time.time()) % 2**32)


class ResourcesConfig(Block):
    """Slots of the experiment. With ``slots_per_trial: 0``, trials train on the CPU."""

    slots_per_trial: Count = 1
    max_slots: Count | None = None
    native_parallel: Ignored[Flag] = False
    weight: Ignored[Number] = 1.0
    priority: Ignored[Annotated[Whole, Field(ge=1, le=99)] | None] = None
    resource_pool: Ignored[str] = ""
    shm_size: Ignored[Whole | str | None] = None
    devices: Ignored[tuple[Any, ...]] = ()
    agent_label: Ignored[str | None] = None
    is_single_node: Ignored[Flag | None] = None
    slots: Ignored[Whole | None] = None


class RetentionPolicy(Block):
    """Retention of logs, in days. It has no effect."""

    log_retention_days: Annotated[Whole, Field(ge=-1, le=32767)] | None = None
