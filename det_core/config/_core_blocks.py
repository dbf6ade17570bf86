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
    """Path on the host."""
    container_path: str
    """Mount point in the container."""
    read_only: Flag = False
    """Whether the container cannot write to the directory."""
    propagation: str = "rprivate"
    """Propagation of later mounts between host and container."""


class EnvironmentVariables(Block):
    """Environment variables as ``KEY=VALUE`` strings, by device. A plain list applies to all devices."""

    cpu: _Variables = Field(default=(), examples=[["OMP_NUM_THREADS=4"]])
    """Variables of workers on a machine without NVIDIA GPUs."""
    cuda: _Variables = Field(default=(), examples=[["NCCL_DEBUG=INFO"]])
    """Variables of workers on a machine with NVIDIA GPUs. Old configs name this key ``gpu``."""
    rocm: _Variables = Field(default=(), examples=[["HIP_VISIBLE_DEVICES=0"]])
    """Variables for AMD GPUs. They have no effect, because launchers detect NVIDIA GPUs only."""

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
    """Variables that are added to the environment of the workers."""
    image: Ignored[str | dict[str, str] | None] = None
    """Container image, or one image per device. Workers run in the environment that ``det`` is installed in."""
    force_pull_image: Ignored[Flag] = False
    """Whether to download the container image again for each run."""
    registry_auth: Ignored[dict[str, Any] | None] = None
    """Credentials of the registry of the container image."""
    ports: Ignored[dict[str, Whole]] = Field(default_factory=dict)
    """Ports of the container, by name."""
    proxy_ports: Ignored[tuple[dict[str, Any], ...]] = ()
    """Ports of the container that the cluster's master makes reachable."""
    add_capabilities: Ignored[tuple[str, ...]] = ()
    """Linux capabilities to give to the container."""
    drop_capabilities: Ignored[tuple[str, ...]] = ()
    """Linux capabilities to take from the container."""
    pod_spec: Ignored[dict[str, Any] | None] = None
    """Specification of the Kubernetes pod."""


class OptimizationsConfig(Block):
    """Options of gradient aggregation, communication and mixed precision."""

    aggregation_frequency: Positive = Field(default=1, examples=[4], json_schema_extra={"unit": "batches"})
    """Number of batches per optimizer step."""
    average_aggregated_gradients: Flag = True
    """Whether to divide aggregated gradients by ``aggregation_frequency``."""
    average_training_metrics: Flag = True
    """Whether to report the mean of the training metrics of all workers, instead of those of the chief."""
    gradient_compression: Flag = False
    """Whether workers exchange gradients as float16."""
    mixed_precision: Literal["O0", "O1", "O2", "O3"] = "O0"
    """Level of mixed precision in PyTorch trials. ``O0`` is float32, and all other levels mean autocast."""
    tensor_fusion_threshold: Count = Field(default=64, examples=[128], json_schema_extra={"unit": "MiB"})
    """Maximum size in MiB of the gradients that Horovod exchanges at once."""
    tensor_fusion_cycle_time: Count = Field(default=1, examples=[5], json_schema_extra={"unit": "milliseconds"})
    """Milliseconds between two exchanges of Horovod."""
    auto_tune_tensor_fusion: Flag = False
    """Whether Horovod tunes the threshold and the cycle time of tensor fusion while the trial trains."""
    grad_updates_size_file: Ignored[str | None] = None
    """File for the sizes of gradient updates."""


class ProfilingConfig(Block):
    """Profiling of the hosts of a trial."""

    enabled: Flag = False
    """Whether the load of each host is recorded while the trial trains."""
    begin_on_batch: Ignored[Count] = 0
    """First batch to profile. The load is recorded from the start."""
    end_after_batch: Ignored[Count | None] = None
    """Last batch to profile. The load is recorded until the end."""
    sync_timings: Ignored[Flag] = True
    """Whether to wait for the GPU before each timestamp. The load of the host needs no such wait."""

    @field_validator("end_after_batch")
    @classmethod
    def _ends_after_it_begins(cls, end: int | None, info: ValidationInfo) -> int | None:
        begin = info.data.get("begin_on_batch", 0)
        if end is not None and end < begin:
            raise PydanticCustomError("range", "expected a batch >= begin_on_batch, which is {begin}", {"begin": begin})
        return end


class ReproducibilityConfig(Block):
    """Random seed of the experiment.

    The dumped config contains the seed, so a resumed experiment keeps it.
    """

    experiment_seed: Annotated[Count, Field(le=2**32 - 1)] = Field(
        default_factory=lambda: int(time.time()) % 2**32, examples=[42], json_schema_extra={"unit": "none"}
    )
    """Seed of the search and of all trials, 0 to 2**32 - 1. By default the time of submission in seconds."""


class ResourcesConfig(Block):
    """Slots of the experiment."""

    slots_per_trial: Count = Field(default=1, examples=[2], json_schema_extra={"unit": "slots"})
    """Number of workers of each trial, each on its own GPU if there are any. With 0, one worker trains on the CPU."""
    min_slots_per_trial: Positive | None = Field(default=None, examples=[1], json_schema_extra={"unit": "slots"})
    """Minimum number of workers of an elastic trial, which continues on fewer slots from its last checkpoint if
    ``slots_per_trial`` are not available for ``elastic_timeout`` seconds. Only numbers that divide
    ``global_batch_size`` are used. By default the number of workers never changes."""
    elastic_timeout: Count = Field(default=60, examples=[300], json_schema_extra={"unit": "seconds"})
    """Seconds for which an elastic trial waits for slots before it continues on fewer, and for which more slots must be
    free before it saves a checkpoint and continues on them."""
    max_slots: Count | None = Field(default=None, examples=[8], json_schema_extra={"unit": "slots"})
    """Maximum number of slots that the trials occupy together. By default as many as the launcher has."""
    native_parallel: Ignored[Flag] = False
    """Whether one process uses all slots of a trial. Release 0.12 had this key."""
    weight: Ignored[Number] = 1.0
    """Weight of the experiment in the fair-share scheduler of a cluster."""
    priority: Annotated[Whole, Field(ge=1, le=99)] | None = Field(
        default=None, examples=[10], json_schema_extra={"unit": "none"}
    )
    """Priority of the trials that wait for slots, 1 to 99. Smaller numbers go first. 42 by default."""
    resource_pool: Ignored[str] = ""
    """Pool of machines in the cluster."""
    shm_size: Ignored[Whole | str | None] = None
    """Size of the container's shared memory. Workers use that of the host."""
    devices: Ignored[tuple[Any, ...]] = ()
    """Devices of the host that are mounted in the container. Workers use those of the host."""
    agent_label: Ignored[str | None] = None
    """Label of the machines that may run the trials."""
    is_single_node: Ignored[Flag | None] = None
    """Whether all slots of a trial must be on one machine."""
    slots: Ignored[Whole | None] = None
    """Number of slots of a notebook, command or shell. Trials have ``slots_per_trial``."""

    def slot_counts(self, global_batch_size: object) -> tuple[int, ...]:
        """Return the numbers of slots that a trial may have, largest first.

        It is ``slots_per_trial`` alone unless the trial is elastic. Others divide ``global_batch_size``, so that each
        step has the same records on any number of slots.
        """
        most = max(self.slots_per_trial, 1)
        least = self.min_slots_per_trial or most
        if type(global_batch_size) is not int or global_batch_size % most:
            return (most,)
        return tuple(count for count in range(most, least - 1, -1) if global_batch_size % count == 0)


class RetentionPolicy(Block):
    """Retention of logs, in days. It has no effect."""

    log_retention_days: Annotated[Whole, Field(ge=-1, le=32767)] | None = None
    """Number of days to keep the logs of trials, or -1 to keep them forever."""
