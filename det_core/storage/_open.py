"""From a config block to the store that the chosen plugin implements."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from det_core.plugins import registry

if TYPE_CHECKING:
    from pydantic import BaseModel

    from det_core.interfaces.storage import StorageManager


def open_storage(name: str, options: BaseModel | None) -> StorageManager:
    """Make the store.

    Args:
        name: the registered name, such as ``directory`` (``checkpoint_storage.type``).
        options: the rest of the block, validated by the plugin's own model.

    Raises:
        PluginError: no usable plugin has this name.
    """
    plugins = registry()
    return cast("StorageManager", plugins.call_target(plugins.find("storage", name), options))
