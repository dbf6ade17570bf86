"""Creation of the store that a config block selects."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from det_core.plugins import plugin_registry

if TYPE_CHECKING:
    from pydantic import BaseModel

    from det_core.interfaces.storage import StorageManager


def open_storage(name: str, options: BaseModel | None) -> StorageManager:
    """Return the store that a plugin creates from its part of the config.

    Args:
        name: the registered name, such as ``directory`` (``checkpoint_storage.type``).
        options: the rest of the config block, validated by the plugin's model.

    Raises:
        PluginError: no usable plugin has this name.
    """
    plugins = plugin_registry()
    return cast("StorageManager", plugins.call_target(plugins.find("storage", name), options))


def is_bucket(manager: StorageManager) -> bool:
    """Return whether a storage is the same for all machines, unlike a path, which each has for itself."""
    return urlsplit(manager.location("any")).scheme not in ("", "file")
