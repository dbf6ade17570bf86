"""Registration of the ``gcs`` store with det. Importing this module is cheap, as it does not import Google's client."""

from __future__ import annotations

from collections.abc import Iterator

import det_core
from det_core.specs import StorageSpec


@det_core.hookimpl
def det_storage() -> Iterator[StorageSpec]:
    """Yield the specification of the store."""
    yield StorageSpec(
        name="gcs",
        target="det_storage_gcs._bucket:open_gcs_storage",
        config_model="det_storage_gcs._config:GCSConfig",
        install="pip install det-storage-gcs",
    )
