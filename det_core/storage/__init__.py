"""Checkpoint storage with manifests, transfers, and the stores for mounted file systems and object stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from det_core.lazy import lazy_exports

if TYPE_CHECKING:
    from det_core.interfaces.storage import Selector as Selector
    from det_core.local_files.below import open_below as open_below
    from det_core.local_files.checksum import Entry as Entry
    from det_core.local_files.checksum import checksum_file as checksum_file
    from det_core.storage._delete import ALL_FILES as ALL_FILES
    from det_core.storage._delete import delete_stored_files as delete_stored_files
    from det_core.storage._directory_tree import is_inside as is_inside
    from det_core.storage._directory_tree import parent_directories as parent_directories
    from det_core.storage._manifest import METADATA_FILE as METADATA_FILE
    from det_core.storage._manifest import Manifest as Manifest
    from det_core.storage._manifest import copied_from as copied_from
    from det_core.storage._manifest import read_object as read_object
    from det_core.storage._manifest import sign_copy as sign_copy
    from det_core.storage._open import check_storage as check_storage
    from det_core.storage._open import is_bucket as is_bucket
    from det_core.storage._open import open_storage as open_storage
    from det_core.storage._restore import StoredCheckpoint as StoredCheckpoint
    from det_core.storage._restore import find_checkpoint as find_checkpoint
    from det_core.storage._restore import read_checkpoint_metadata as read_checkpoint_metadata
    from det_core.storage._restore import restore_checkpoint as restore_checkpoint
    from det_core.storage._save import adopt_files as adopt_files
    from det_core.storage._save import publish_checkpoint as publish_checkpoint
    from det_core.storage._save import save_checkpoint as save_checkpoint
    from det_core.storage._save import scan_directory as scan_directory
    from det_core.storage._save import store_files as store_files
    from det_core.storage._save import without_directory_links as without_directory_links
    from det_core.storage.config import BucketPrefix as BucketPrefix
    from det_core.storage.object_storage import ObjectStorage as ObjectStorage

_EXPORTS = {
    "ALL_FILES": "det_core.storage._delete",
    "BucketPrefix": "det_core.storage.config",
    "Entry": "det_core.local_files.checksum",
    "METADATA_FILE": "det_core.storage._manifest",
    "Manifest": "det_core.storage._manifest",
    "ObjectStorage": "det_core.storage.object_storage",
    "Selector": "det_core.interfaces.storage",
    "StoredCheckpoint": "det_core.storage._restore",
    "adopt_files": "det_core.storage._save",
    "check_storage": "det_core.storage._open",
    "checksum_file": "det_core.local_files.checksum",
    "copied_from": "det_core.storage._manifest",
    "delete_stored_files": "det_core.storage._delete",
    "find_checkpoint": "det_core.storage._restore",
    "is_bucket": "det_core.storage._open",
    "is_inside": "det_core.storage._directory_tree",
    "read_checkpoint_metadata": "det_core.storage._restore",
    "open_storage": "det_core.storage._open",
    "parent_directories": "det_core.storage._directory_tree",
    "publish_checkpoint": "det_core.storage._save",
    "read_object": "det_core.storage._manifest",
    "restore_checkpoint": "det_core.storage._restore",
    "save_checkpoint": "det_core.storage._save",
    "scan_directory": "det_core.storage._save",
    "open_below": "det_core.local_files.below",
    "sign_copy": "det_core.storage._manifest",
    "store_files": "det_core.storage._save",
    "without_directory_links": "det_core.storage._save",
}

_OWN = {
    "ALL_FILES",
    "Manifest",
    "Selector",
    "StoredCheckpoint",
    "adopt_files",
    "copied_from",
    "find_checkpoint",
    "is_inside",
    "parent_directories",
    "publish_checkpoint",
    "sign_copy",
    "store_files",
    "without_directory_links",
}
"""Names for the modules of det-core, which the contract does not promise."""

__all__ = [name for name in _EXPORTS if name not in _OWN]

__getattr__, __dir__ = lazy_exports(globals(), _EXPORTS)
