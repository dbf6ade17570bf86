"""Checkpoint storage with manifests, transfers, and the stores for mounted file systems and object stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from det_core.lazy import exports

if TYPE_CHECKING:
    from det_core.storage._checksum import Entry as Entry
    from det_core.storage._checksum import checksum as checksum
    from det_core.storage._manifest import METADATA_FILE as METADATA_FILE
    from det_core.storage._manifest import Manifest as Manifest
    from det_core.storage._manifest import copied_from as copied_from
    from det_core.storage._manifest import read_object as read_object
    from det_core.storage._manifest import sign_copy as sign_copy
    from det_core.storage._open import open_storage as open_storage
    from det_core.storage._remove import ALL as ALL
    from det_core.storage._remove import check as check
    from det_core.storage._remove import delete as delete
    from det_core.storage._remove import selector as selector
    from det_core.storage._restore import StoredCheckpoint as StoredCheckpoint
    from det_core.storage._restore import find as find
    from det_core.storage._restore import metadata as metadata
    from det_core.storage._restore import restore as restore
    from det_core.storage._save import Selector as Selector
    from det_core.storage._save import adopt_files as adopt_files
    from det_core.storage._save import publish as publish
    from det_core.storage._save import put_files as put_files
    from det_core.storage._save import save as save
    from det_core.storage._save import scan as scan
    from det_core.storage._transfer import Progress as Progress
    from det_core.storage._tree import is_inside as is_inside
    from det_core.storage.objects import ObjectStorage as ObjectStorage

_EXPORTS = {
    "ALL": "det_core.storage._remove",
    "Entry": "det_core.storage._checksum",
    "METADATA_FILE": "det_core.storage._manifest",
    "Manifest": "det_core.storage._manifest",
    "ObjectStorage": "det_core.storage.objects",
    "Progress": "det_core.storage._transfer",
    "Selector": "det_core.storage._save",
    "StoredCheckpoint": "det_core.storage._restore",
    "adopt_files": "det_core.storage._save",
    "check": "det_core.storage._remove",
    "checksum": "det_core.storage._checksum",
    "copied_from": "det_core.storage._manifest",
    "delete": "det_core.storage._remove",
    "find": "det_core.storage._restore",
    "is_inside": "det_core.storage._tree",
    "metadata": "det_core.storage._restore",
    "open_storage": "det_core.storage._open",
    "publish": "det_core.storage._save",
    "put_files": "det_core.storage._save",
    "read_object": "det_core.storage._manifest",
    "restore": "det_core.storage._restore",
    "save": "det_core.storage._save",
    "scan": "det_core.storage._save",
    "selector": "det_core.storage._remove",
    "sign_copy": "det_core.storage._manifest",
}

__all__ = [*_EXPORTS]

__getattr__, __dir__ = exports(globals(), _EXPORTS)
