"""Size of the archive of a context directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_core.errors import DetError
from det_core.launch import context_archive
from det_core.launch.context_archive import pack_context_dir, unpack_context_dir


def test_an_archive_may_be_as_large_as_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers and contents are blocks of 512 bytes, and the last block of a tar file is filled to 10 KiB."""
    code, target = tmp_path / "code", tmp_path / "unpacked"
    for directory in (code, target):
        directory.mkdir()
    (code / "a.py").write_bytes(bytes(512))

    def fits(limit: int) -> bool:
        monkeypatch.setattr(context_archive, "_ARCHIVE_LIMIT", limit)
        try:
            pack_context_dir(code)
        except DetError:
            return False
        return True

    smallest = next(limit for limit in range(0, 10_240, 512) if fits(limit))
    assert smallest >= 1024
    monkeypatch.setattr(context_archive, "_ARCHIVE_LIMIT", smallest - 1)
    with pytest.raises(DetError, match="make an archive of 0 MiB, the limit is 0 MiB"):
        pack_context_dir(code)
    monkeypatch.setattr(context_archive, "_ARCHIVE_LIMIT", 10_240)
    content = pack_context_dir(code)
    unpack_context_dir(content, target)
    assert (target / "a.py").read_bytes() == bytes(512)
    monkeypatch.setattr(context_archive, "_ARCHIVE_LIMIT", 10_239)
    with pytest.raises(DetError, match="it holds more than 0 MiB"):
        unpack_context_dir(content, target)
