"""Config block of the ``wandb`` observer."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from det_core.interfaces.addresses import check_address

REFUSED_IN_PROJECTS: Final = re.compile(r"[/\\#?%:\x00-\x1f\x7f]")
"""Characters that W&B refuses in the names of projects, and control characters."""
_MODES: Final = {"": "online", "run": "online", "dryrun": "offline"}
"""Modes by other values of WANDB_MODE that W&B takes for them."""


def _default_mode() -> Any:  # validated
    mode = os.environ.get("WANDB_MODE", "")
    return _MODES.get(mode, mode)


def _is_a_project(name: str) -> str:
    if REFUSED_IN_PROJECTS.search(name) or not name.strip():
        raise ValueError(f"{name!r} is not the name of a W&B project, which is not blank and has none of / \\ # ? % :")
    return name


def _make_absolute(path: Path) -> Path:
    return Path(os.path.expanduser(path)).absolute()  # noqa: PTH111  (keeps the ~ of an unknown user, as W&B does)


def _is_an_address(url: str) -> str:
    return check_address(url, "the key api_key")


class WandbConfig(BaseModel):
    """Config block of the ``wandb`` observer, which records an experiment in Weights & Biases.

    Other settings are W&B's own, such as WANDB_ENTITY and WANDB_TAGS in the environment of the workers.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    project: Annotated[str, Field(max_length=128), AfterValidator(_is_a_project)] | None = Field(
        default_factory=lambda: os.environ.get("WANDB_PROJECT") or None, examples=["digits"]
    )
    """Name of the W&B project. By default that of WANDB_PROJECT when the experiment is submitted, or else the name of
    the experiment with hyphens in place of characters that W&B refuses, or ``det`` if it has none."""
    entity: str | None = Field(default=None, min_length=1, examples=["vision-team"])
    """User or team that the project belongs to. By default that of W&B itself."""
    group: str | None = Field(default=None, min_length=1, max_length=128, examples=["baselines"])
    """Group of the runs. By default ``experiment ID`` for the trials of a search, and that of W&B itself for others."""
    tags: list[Annotated[str, Field(min_length=1, max_length=64)]] = Field(default=[], examples=[["baseline"]])
    """Tags of the runs."""
    mode: Literal["online", "offline", "disabled"] = Field(default_factory=_default_mode, examples=["offline"])
    """Whether runs are sent to the service, written to `dir` for ``wandb sync``, or not recorded. By default that of
    WANDB_MODE when the experiment is submitted, or else ``online``."""
    dir: Annotated[Path, AfterValidator(_make_absolute)] = Field(
        default_factory=lambda: Path(os.environ.get("WANDB_DIR") or "."), examples=["/data/runs"]
    )
    """Directory of the folder ``wandb``, in which W&B keeps its files. By default that of WANDB_DIR when the experiment
    is submitted, or else the working directory. ``~`` is the home directory."""
    base_url: Annotated[str, AfterValidator(_is_an_address)] | None = Field(
        default=None, examples=["https://wandb.example.com"]
    )
    """Address of a W&B server of your own. By default that of W&B itself."""
    api_key: SecretStr | None = Field(default=None, examples=["API_KEY"])
    """Key of the account. By default that of WANDB_API_KEY in the environment of the workers, or of ``wandb login``."""
