"""Options of the launcher ``kubernetes`` in a config, and the keys of other blocks that it uses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, model_validator
from typing_extensions import Self

from det_core.config import Block, Number, Positive
from det_kubernetes._pod_specs import explain_unusable_manifest, find_image

_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(m|[kMGTPE]i?)?")
"""Amount of a resource, such as ``4``, ``500m`` or ``16Gi``: a number and a suffix."""
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtp]?)i?b?", re.IGNORECASE)
"""Size in the form of Docker, such as ``2g`` or ``512 MB``, whose units are powers of 1024."""
_NVIDIA = "nvidia.com/"
"""Beginning of the names of resources on which workers train with CUDA."""


def _check_quantity(value: object) -> object:
    text = str(value)
    if isinstance(value, bool) or not _QUANTITY.fullmatch(text):
        raise ValueError(f"expected an amount such as 4, 500m or 16Gi, got {value!r}")
    return text


def _check_gpus(value: dict[str, str]) -> dict[str, str]:
    for name, amount in value.items():
        if name.startswith(_NVIDIA) and amount != "1":
            raise ValueError(
                f"{name} is {amount}, but a slot is one GPU; write 1, and set slots_per_node to the GPUs of a node"
            )
    return value


def _check_manifest(value: dict[str, Any]) -> dict[str, Any]:
    if problem := explain_unusable_manifest(value):
        raise ValueError(problem)
    return value


def _check_size(value: object) -> object:
    if value is None:
        return None
    if isinstance(value, bool) or not (found := _SIZE.fullmatch(str(value).strip())):
        raise ValueError(f"expected a number of bytes, or a size such as 2g or 512MiB, got {value!r}")
    return f"{found[1]}{found[2].upper()}i" if found[2] else found[1]


_Quantity = Annotated[str, BeforeValidator(_check_quantity)]


class KubernetesConfig(Block):
    """Options of the launcher."""

    slots_per_node: Positive | None = Field(default=None, examples=[8], json_schema_extra={"unit": "slots"})
    """Maximum number of workers of a trial in one pod, such as the number of GPUs of a node. Larger trials have several
    pods. By default, all workers of a trial are in one pod."""
    resources: Annotated[dict[str, _Quantity], Field(min_length=1), AfterValidator(_check_gpus)] = Field(
        default={"cpu": "1"}, examples=[{"nvidia.com/gpu": 1, "cpu": 8, "memory": "32Gi"}]
    )
    """Resources of each slot, such as ``{nvidia.com/gpu: 1, cpu: 8, memory: 32Gi}``. ``cpu`` and ``memory`` are
    requested, and all except ``cpu`` are limits. By default a CPU."""
    namespace: str | None = Field(default=None, examples=["training"])
    """Namespace of the pods. By default that of the context, or that of the pod in which the runner is."""
    context: str | None = Field(default=None, examples=["gke_vision_europe-west4_a100"])
    """Context of the kubeconfig. By default the current one, or the service account of the pod in which the runner
    is."""
    reconnect_timeout: Annotated[Number, Field(ge=0)] = Field(
        default=600.0, examples=[900], json_schema_extra={"unit": "seconds"}
    )
    """Seconds for which the workers of a trial train on without a connection to the runner, such as while the API
    server restarts. With 0, they end with the connection."""
    priority_class: str | None = Field(default=None, examples=["batch"])
    """Priority class of the pods."""

    def device(self) -> Literal["cpu", "cuda"]:
        """Return the device of the slots."""
        return "cuda" if any(name.startswith(_NVIDIA) for name in self.resources) else "cpu"

    def resources_of(self, slots: int) -> dict[str, str]:
        """Return the resources of a pod with a number of slots."""
        return {name: _multiply(amount, slots) for name, amount in self.resources.items()}

    def cpus_of(self, slots: int) -> int:
        """Return the number of cores of a pod with a number of slots, rounded up, or 0 if its share is unknown."""
        found = _QUANTITY.fullmatch(self.resources.get("cpu", "0"))
        assert found
        return -int(-float(found[1]) * slots / (1000 if found[2] == "m" else 1) // 1)


class ClaimedEnvironment(BaseModel):
    """Keys of the block ``environment`` that are about containers."""

    image: str | dict[str, str] | None = None
    force_pull_image: bool = False
    pod_spec: Annotated[dict[str, Any], AfterValidator(_check_manifest)] | None = None
    add_capabilities: tuple[str, ...] = ()
    drop_capabilities: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _has_an_image(self) -> Self:
        if not (self.image or find_image(self.pod_spec or {})):
            raise ValueError("pods need an image; set environment.image, such as registry.example.com/det:0.1")
        return self

    def image_for(self, device: str) -> str | None:
        """Return the image of the pods of a device, or None if only the manifest names one."""
        if isinstance(self.image, Mapping):
            return self.image.get(device) or (
                self.image.get("gpu") if device == "cuda" else None
            )  # the name before 0.17
        return self.image


class ClaimedResources(BaseModel):
    """Keys of the block ``resources`` that are about containers."""

    shm_size: Annotated[str | None, BeforeValidator(_check_size)] = None


class ClaimedKeys(BaseModel):
    """Keys of other blocks that the launcher uses."""

    environment: ClaimedEnvironment = Field(default_factory=ClaimedEnvironment, validate_default=True)
    resources: ClaimedResources = ClaimedResources()


def _multiply(amount: str, factor: int) -> str:
    found = _QUANTITY.fullmatch(amount)
    assert found
    return f"{float(found[1]) * factor:.12g}{found[2] or ''}"
