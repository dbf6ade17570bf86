"""Registration of the ``azure`` store with det. Importing this module does not import Azure's client."""

from __future__ import annotations

from collections.abc import Iterator

import det_core
from det_core.specs import StorageSpec


@det_core.hookimpl
def det_storage() -> Iterator[StorageSpec]:
    """Yield the specification of the store."""
    yield StorageSpec(
        name="azure",
        target="det_storage_azure._container:open_azure_storage",
        config_model="det_storage_azure._config:AzureConfig",
        install="pip install det-storage-azure",
    )
