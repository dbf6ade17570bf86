"""Directory in which det keeps its own data."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from det_core.disk_errors import explain_disk_error
from det_core.errors import DiskError, TrackingError

__all__ = ["home_directory", "private_directory", "user_name"]

MASTER_VARIABLES = ("DET_MASTER", "DET_MASTER_ADDR")
"""Environment variables with the URL of the tracking store, in the order in which they are used."""


def home_directory() -> Path:
    """Return the directory of det's own data, created with mode 0700 if necessary.

    It is ``DET_HOME``, or else the platform's directory for user data.

    Raises:
        DiskError: the directory cannot be created, because its disk is full, over a quota, read-only or broken.
        TrackingError: the directory cannot be found or created.
    """
    try:
        path = Path(os.environ.get("DET_HOME") or _platform_home()).expanduser()
    except RuntimeError as error:  # a user without a home directory
        raise TrackingError(
            f"cannot find a directory for det's data ({error}). Set DET_HOME to a directory that you can write to."
        ) from error
    return _create(path.absolute())


def user_name() -> str:
    """Return the name of this process's user, or the user id if the user has no name, as in many containers."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def private_directory(name: str) -> Path:
    """Return a subdirectory of `home_directory`, created with mode 0700, because others may read ``DET_HOME``.

    Raises:
        DiskError, TrackingError: as `home_directory`.
    """
    return _create(home_directory() / name)


def default_storage() -> dict[str, Any]:
    """Return the default ``checkpoint_storage`` block, which names a directory next to the embedded database."""
    return {"type": "directory", "container_path": str(private_directory("checkpoints"))}


def _platform_home() -> str:
    import platformdirs

    return platformdirs.user_data_dir("det")


def _create(path: Path) -> Path:
    try:
        str(path).encode()  # URLs and the tracking store contain it as text
    except UnicodeEncodeError:
        raise TrackingError(f"{str(path)!a} is not UTF-8. Set DET_HOME to a directory whose path is.") from None
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        disk_error = explain_disk_error(error, path)
        kind, reason = (DiskError, disk_error) if disk_error else (TrackingError, error.strerror)
        raise kind(f"{path} cannot be created: {reason}. Set DET_HOME to a directory that you can write to.") from error
    return path


def default_master() -> str | None:
    """Return the URL of the tracking store in `MASTER_VARIABLES`, or None if none of them is set."""
    return next(filter(None, map(os.environ.get, MASTER_VARIABLES)), None)
