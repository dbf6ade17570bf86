"""Where det keeps its own data."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from det_core.errors import TrackingError


def home() -> Path:
    """The directory of det's own data: ``DET_HOME``, else the platform's place for user data. Created with mode 0700.

    Raises:
        TrackingError: it cannot be created.
    """
    import platformdirs

    try:
        path = Path(os.environ.get("DET_HOME") or platformdirs.user_data_dir("det")).expanduser()
    except RuntimeError as error:  # a user without a home directory
        raise TrackingError(
            f"cannot find a directory for det's data ({error}). Set DET_HOME to a directory that you can write to."
        ) from error
    return _create(path.absolute())


def user_name() -> str:
    """Return the name of this process's user, or the user id if it has no name, as in many containers."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def private_directory(name: str) -> Path:
    """Return a subdirectory of `home`, created with mode 0700 because others may be able to read ``DET_HOME``.

    Raises:
        TrackingError: it cannot be created.
    """
    return _create(home() / name)


def default_storage() -> dict[str, Any]:
    """The ``checkpoint_storage`` of configs that name none: a directory beside the embedded record."""
    return {"type": "directory", "container_path": str(private_directory("checkpoints"))}


def _create(path: Path) -> Path:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise TrackingError(
            f"{path} cannot be created: {error.strerror}. Set DET_HOME to a directory that you can write to."
        ) from error
    return path
