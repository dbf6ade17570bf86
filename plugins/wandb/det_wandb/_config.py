"""Config block of the ``wandb`` observer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from det_core.interfaces.addresses import check_address


def _default_mode() -> Any:  # validated
    return os.environ.get("WANDB_MODE", "online")


def _is_an_address(url: str) -> str:
    return check_address(url, "api_key")


class WandbConfig(BaseModel):
    """Config block of the ``wandb`` observer, which records an experiment in Weights & Biases.

    Other settings are W&B's own, such as WANDB_ENTITY and WANDB_TAGS in the environment of the workers.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    project: str | None = Field(
        default_factory=lambda: os.environ.get("WANDB_PROJECT"), min_length=1, max_length=128, examples=["digits"]
    )
    """Name of the W&B project. By default that of WANDB_PROJECT when the experiment is submitted, or else the name of
    the experiment, or ``det`` if it has none."""
    entity: str | None = Field(default=None, min_length=1, examples=["vision-team"])
    """User or team that the project belongs to. By default that of W&B itself."""
    group: str | None = Field(default=None, min_length=1, max_length=128, examples=["baselines"])
    """Group of the runs. By default ``experiment ID`` for the trials of a search, and that of W&B itself for others."""
    tags: list[Annotated[str, Field(min_length=1, max_length=64)]] = Field(default=[], examples=[["baseline"]])
    """Tags of the runs."""
    mode: Literal["online", "offline", "disabled"] = Field(default_factory=_default_mode, examples=["offline"])
    """Whether runs are sent to the service, written to `dir` for ``wandb sync``, or not recorded. By default that of
    WANDB_MODE when the experiment is submitted, or else ``online``."""
    dir: Annotated[Path, AfterValidator(Path.absolute)] = Field(
        default_factory=lambda: Path(os.environ.get("WANDB_DIR", ".")), examples=["/data/runs"]
    )
    """Directory of the folder ``wandb``, in which W&B keeps its files. By default that of WANDB_DIR when the experiment
    is submitted, or else the working directory."""
    base_url: Annotated[str, AfterValidator(_is_an_address)] | None = Field(
        default=None, examples=["https://wandb.example.com"]
    )
    """Address of a W&B server of your own. By default that of W&B itself."""
    api_key: SecretStr | None = Field(default=None, examples=["API_KEY"])
    """Key of the account. By default that of WANDB_API_KEY in the environment of the workers, or of ``wandb login``."""
