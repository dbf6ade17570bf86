"""The config blocks of the stores on a mounted file system."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, field_validator, model_validator


def _possible(path: Path) -> Path:
    if "\0" in str(path):
        raise ValueError(f"{str(path)!r} contains a zero byte; expected a path of a file system")
    return path


PossiblePath = Annotated[Path, AfterValidator(_possible)]


class DirectoryConfig(BaseModel):
    """``type: directory``: checkpoints under one directory, created on first use."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    is_local: ClassVar[bool] = True

    container_path: PossiblePath
    """Absolute path, or relative to the directory that ``det`` is started in; ``~`` is the home directory."""

    @field_validator("container_path")
    @classmethod
    def _make_absolute(cls, path: Path) -> Path:
        try:
            return path.expanduser().absolute()
        except RuntimeError as error:
            raise ValueError(f"container_path {str(path)!r} names no home directory; write the whole path") from error

    @property
    def base(self) -> Path:
        return self.container_path


class SharedFSConfig(BaseModel):
    """``type: shared_fs``: checkpoints on a file system that every host mounts."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    is_local: ClassVar[bool] = False

    host_path: PossiblePath
    """Absolute path of the mounted directory."""
    storage_path: PossiblePath | None = None
    """Where checkpoints go inside it: relative to host_path, or absolute and inside it."""
    container_path: Path | None = None
    """Where the container world mounted host_path; without meaning here."""
    propagation: str = "rprivate"
    """A mount option of the container world; without meaning here."""

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
        """Inside host_path, after symbolic links and ``..``.

        Raises:
            ValueError: it is not.
        """
        wanted = self.host_path / (self.storage_path or "")
        top, real = os.path.realpath(self.host_path), Path(os.path.realpath(wanted))
        if not real.is_relative_to(top):
            raise ValueError(
                f"storage_path {str(self.storage_path)!r} leads to {str(real)!r}, but must stay inside host_path "
                f"{str(self.host_path)!r}; write a path relative to host_path, without '..' and links that leave it"
            )
        return self.host_path / real.relative_to(top)
