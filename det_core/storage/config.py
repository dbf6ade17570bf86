"""The config blocks of the stores on a mounted file system."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, field_validator, model_validator


class DirectoryConfig(BaseModel):
    """``type: directory``: checkpoints under one directory, created on first use."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    container_path: Path
    """Absolute path, or relative to the directory that ``det`` is started in."""

    @field_validator("container_path")
    @classmethod
    def _make_absolute(cls, path: Path) -> Path:
        return path.expanduser().absolute()

    @property
    def base(self) -> Path:
        return self.container_path


class SharedFSConfig(BaseModel):
    """``type: shared_fs``: checkpoints on a file system that every host mounts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host_path: Path
    """Absolute path of the mounted directory."""
    storage_path: Path | None = None
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
        inside = (self.host_path / (self.storage_path or "")).resolve()
        if not inside.is_relative_to(self.host_path.resolve()):
            raise ValueError(
                f"storage_path {str(self.storage_path)!r} must stay inside host_path {str(self.host_path)!r}"
            )
        return self

    @property
    def base(self) -> Path:
        return self.host_path / (self.storage_path or "")
