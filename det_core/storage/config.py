"""Config blocks of the stores on a mounted file system, and types of options that stores have in common."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator


def _possible(path: Path) -> Path:
    if "\0" in str(path):
        raise ValueError(f"{str(path)!r} contains a zero byte; expected a path of a file system")
    return path


PossiblePath = Annotated[Path, AfterValidator(_possible)]
"""Path without zero bytes."""


def normalize_prefix(prefix: str) -> str:
    """Return the prefix of a bucket's keys in the form that the original used, so that its checkpoints are found.

    Surrounding slashes, repeated slashes and parts that consist of one dot are removed.

    Args:
        prefix: prefix of keys, possibly empty.

    Raises:
        ValueError: the prefix contains ``..``.
    """
    if ".." in prefix.split("/"):
        raise ValueError(f"prefix {prefix!r} contains '..', which has no meaning in a bucket; remove it")
    return posixpath.normpath(prefix).lstrip("/") if prefix else ""


BucketPrefix = Annotated[str, AfterValidator(normalize_prefix)]
"""Prefix of a bucket's keys, which is normalized."""


class DirectoryConfig(BaseModel):
    """Config block of the ``directory`` store, which keeps checkpoints in one directory, created on first use."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    is_local: ClassVar[bool] = True

    container_path: PossiblePath = Field(examples=["~/checkpoints"])
    """Path of the directory, absolute or relative to the working directory of ``det``. ``~`` is the home directory."""

    @field_validator("container_path")
    @classmethod
    def _make_absolute(cls, path: Path) -> Path:
        try:
            return path.expanduser().absolute()
        except RuntimeError as error:
            raise ValueError(
                f"container_path {str(path)!r} refers to an unknown home directory; write the absolute path"
            ) from error

    @property
    def base(self) -> Path:
        """Absolute path of the directory that contains all checkpoints."""
        return self.container_path


class SharedFSConfig(BaseModel):
    """Config block of the ``shared_fs`` store, which keeps checkpoints on a file system that every host mounts."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    is_local: ClassVar[bool] = False

    host_path: PossiblePath = Field(examples=["/mnt/shared"])
    """Absolute path of the mounted directory."""
    storage_path: PossiblePath | None = Field(default=None, examples=["checkpoints"])
    """Directory of the checkpoints inside host_path, relative to it or absolute."""
    checkpoint_path: PossiblePath | None = Field(default=None, examples=["checkpoints"])
    """Name of storage_path in old configs, which is read if neither storage_path nor tensorboard_path is set."""
    tensorboard_path: PossiblePath | None = Field(default=None, examples=["checkpoints"])
    """Name of storage_path in old configs, which is read if storage_path is not set."""
    container_path: Path | None = Field(default=None, json_schema_extra={"deprecated": True})
    """Mount point of host_path in a container. Accepted for compatibility with old configs; has no effect."""
    propagation: str = Field(default="rprivate", json_schema_extra={"deprecated": True})
    """Mount option of containers. Accepted for compatibility with old configs; has no effect."""

    @model_validator(mode="before")
    @classmethod
    def _read_old_names(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        names = ("storage_path", "tensorboard_path", "checkpoint_path")
        given = [data[name] for name in names if data.get(name) is not None]
        kept = {key: value for key, value in data.items() if key not in names}
        return {**kept, "storage_path": given[0]} if given else kept

    @field_validator("host_path")
    @classmethod
    def _host_path_is_absolute(cls, path: Path) -> Path:
        if not path.is_absolute():
            raise ValueError(f"host_path {str(path)!r} must be absolute, for example /mnt/shared")
        return path

    @model_validator(mode="after")
    def _storage_path_stays_inside(self) -> SharedFSConfig:
        assert self.base
        return self

    @property
    def base(self) -> Path:
        """Directory inside host_path that contains all checkpoints, with symbolic links and ``..`` resolved.

        Raises:
            ValueError: storage_path leads out of host_path.
        """
        wanted = self.host_path / (self.storage_path or "")
        top, real = os.path.realpath(self.host_path), Path(os.path.realpath(wanted))
        if not real.is_relative_to(top):
            raise ValueError(
                f"storage_path {str(self.storage_path)!r} leads to {str(real)!r}, but must stay inside host_path "
                f"{str(self.host_path)!r}; write a path relative to host_path, without '..' and links that leave it"
            )
        return self.host_path / real.relative_to(top)
