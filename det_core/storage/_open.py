"""Creation and check of the store that a config block selects."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from det_core.disk_errors import explain_disk_error
from det_core.errors import StorageError
from det_core.interfaces.storage import StorageManager
from det_core.scratch import scratch_directory

if TYPE_CHECKING:
    from pydantic import BaseModel


def open_storage(name: str, options: BaseModel | None) -> StorageManager:
    """Return the store that a plugin creates from its part of the config.

    Args:
        name: the registered name, such as ``directory`` (``checkpoint_storage.type``).
        options: the rest of the config block, validated by the plugin's model.

    Raises:
        PluginError: no usable plugin has this name.
    """
    from det_core.plugins import plugin_registry  # those who only save checkpoints need no plugins

    plugins = plugin_registry()
    return cast("StorageManager", plugins.call_target(plugins.find("storage", name), options))


def is_bucket(manager: StorageManager) -> bool:
    """Return whether a storage is the same for all machines, unlike a path, which each has for itself."""
    return urlsplit(manager.location("any")).scheme not in ("", "file")


def check_storage(storage: StorageManager) -> None:
    """Write, read and delete a small file, so that an unusable store fails within seconds, before training starts.

    Raises:
        StorageError: the store cannot be used.
    """
    storage = storage.with_few_retries()
    storage_id, content = f"check-{uuid.uuid4()}", b"det checks this storage"
    with scratch_directory("check") as scratch:
        path, back = scratch / "out", scratch / "back"
        path.write_bytes(content)
        with explain_put_errors(storage):
            storage.put(storage_id, "check.txt", path)
        try:
            storage.get(storage_id, "check.txt", back)
            if back.read_bytes() != content:
                raise StorageError(f"checkpoint storage returned {back.read_bytes()!r} for {content!r}")
        finally:
            storage.delete(storage_id, ["check.txt"])


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
