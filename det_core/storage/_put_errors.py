"""Errors of the operating system that a store lets through instead of raising StorageError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from det_core.disk_errors import explain_disk_error
from det_core.errors import StorageError
from det_core.interfaces.storage import StorageManager


@contextmanager
def explain_put_errors(storage: StorageManager) -> Iterator[None]:
    """Turn errors of the operating system into StorageError while the block stores files.

    Users then see which plugin failed, as such an error may name a file that only its author knows.
    """
    try:
        yield
    except OSError as error:
        store = type(storage)
        raise explain_disk_error(error) or StorageError(
            f"the checkpoint storage {store.__module__}.{store.__qualname__} could not store a file: "
            f"{type(error).__name__}: {error}; check its options in checkpoint_storage, or ask the plugin's author"
        ) from error
