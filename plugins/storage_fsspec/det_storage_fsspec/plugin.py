"""Registration of the ``fsspec`` store with det. Importing this module does not import fsspec."""

from __future__ import annotations

from collections.abc import Iterator

import det_core
from det_core.specs import StorageSpec


@det_core.hookimpl
def det_storage() -> Iterator[StorageSpec]:
    """Yield the specification of the store."""
    yield StorageSpec(
        name="fsspec",
        target="det_storage_fsspec._storage:FsspecStorage",
        config_model="det_storage_fsspec._config:FsspecConfig",
        install="pip install det-storage-fsspec",
    )
