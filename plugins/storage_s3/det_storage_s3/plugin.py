"""Registration of the ``s3`` store with det. Importing this module is cheap, because it does not import botocore."""

from __future__ import annotations

from collections.abc import Iterator

import det_core
from det_core.specs import StorageSpec


@det_core.hookimpl
def det_storage() -> Iterator[StorageSpec]:
    """Yield the specification of the store."""
    yield StorageSpec(
        name="s3",
        target="det_storage_s3._bucket:open_s3_storage",
        config_model="det_storage_s3._config:S3Config",
        install="pip install det-storage-s3",
    )
