"""Changes of stored files without their store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from det_testing.storage import Damage


def change_files_of(directory: Path) -> Damage:
    """Return a function that changes files in a directory of checkpoints."""

    def change_file(storage_id: str, path: str, change: Callable[[bytes], bytes]) -> None:
        file = directory / storage_id / path
        content = file.read_bytes()
        file.unlink()  # it is write-protected
        file.write_bytes(change(content))

    return change_file
