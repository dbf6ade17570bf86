"""Options of the launcher ``ray`` in a config."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from det_core.config import Block, Positive

CLIENT = "ray://"
"""Beginning of addresses of the Ray client."""
_DECIMALS = 4


def _check_address(value: str) -> str:
    if value.startswith(CLIENT):
        raise ValueError(
            f"{value!r} leads through the Ray client, which ends the processes of a lost runner too late; run det on a "
            "node of the cluster, such as with `det ray submit`, and omit the address"
        )
    if value != "auto" and not value.rpartition(":")[2].isdecimal():
        raise ValueError(
            f"expected 'auto', or the host and port of the head node such as '10.0.0.1:6379', got {value!r}"
        )
    return value


def _check_resources(value: dict[str, float]) -> dict[str, float]:
    for name, amount in value.items():
        if not name:
            raise ValueError(f"expected a name for each resource, such as CPU, got {value!r}")
        if round(amount, _DECIMALS) != amount:
            raise ValueError(f"{name} is {amount!r}, but Ray counts in steps of {10**-_DECIMALS}")
    gpus = value.get("GPU", 1.0)
    if gpus != 1.0:
        raise ValueError(
            f"GPU is {gpus:g}, but a slot is one GPU; write GPU: 1, and set slots_per_node to the GPUs of a node"
        )
    return value


_Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Resources = Annotated[dict[str, _Amount], Field(min_length=1), AfterValidator(_check_resources)]


class RayConfig(Block):
    """Options of the launcher."""

    address: Annotated[str, AfterValidator(_check_address)] = Field(default="auto", examples=["10.0.0.1:6379"])
    """Host and port of the cluster's head node, such as ``10.0.0.1:6379``. By default, the variable ``RAY_ADDRESS``,
    or the cluster that this machine is a node of."""
    slots_per_node: Positive | None = Field(default=None, examples=[8], json_schema_extra={"unit": "slots"})
    """Maximum number of workers of a trial on one node, such as the number of its GPUs. Larger trials have several
    nodes. By default, all workers of a trial are on one node."""
    resources: _Resources | None = Field(default=None, examples=[{"GPU": 1, "CPU": 8}])
    """Ray's resources of each slot, such as ``{GPU: 1, CPU: 8}``. By default, a GPU if the cluster has any, otherwise a
    CPU."""
