"""The context directory (the user's code) as a gzipped tar file."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

from det_core.core.context_dir import IGNORE_FILE, context_files
from det_core.errors import DetError

LIMIT = 96 << 20
"""Bytes of files that a context directory may hold."""
_ARCHIVE_LIMIT = 2 * LIMIT
"""Maximum size of the uncompressed tar file in bytes, headers included."""
_YAML = (".yaml", ".yml", ".json")


def pack(directory: Path, hide: Callable[[str], str] = str) -> bytes:
    """Pack the files that `context_files` finds; a link becomes the file that it leads to.

    Args:
        hide: takes the text of each YAML or JSON file, and returns it without secrets.

    Raises:
        DetError: it is no directory or ``DET_HOME``, or its files exceed the limit.
    """
    if not directory.is_dir():
        raise DetError(f"the context directory {str(directory)!r} does not exist; give the directory with your code")
    files = list(context_files(directory))
    total = sum((directory / name).stat().st_size for name in files)
    if total > LIMIT:
        raise DetError(
            f"the context directory {str(directory)!r} holds {total >> 20} MiB, the limit is {LIMIT >> 20} MiB; "
            f"name data and outputs in a file {IGNORE_FILE} there"
        )
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1, dereference=True) as archive:
        for name in files:
            path = directory / name
            if name.endswith(_YAML) or path.resolve().name.endswith(_YAML):
                _add_hidden(archive, path, name, hide)
            else:
                archive.add(path, name, recursive=False)
        if archive.offset > _ARCHIVE_LIMIT:
            raise DetError(
                f"the {len(files)} files of the context directory {str(directory)!r} make an archive of "
                f"{archive.offset >> 20} MiB, the limit is {_ARCHIVE_LIMIT >> 20} MiB; name data and outputs in a file "
                f"{IGNORE_FILE} there"
            )
    return buffer.getvalue()


def _add_hidden(archive: tarfile.TarFile, path: Path, name: str, hide: Callable[[str], str]) -> None:
    member = archive.gettarinfo(path, name)
    content = hide(path.read_bytes().decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def unpack(content: bytes, directory: Path) -> None:
    """Unpack an archive into an existing directory. Writes nothing outside of it, and no more than `pack` allows.

    Raises:
        DetError: the archive was not made by `pack`, or the disk is full.
    """
    try:
        with gzip.open(io.BytesIO(content)) as stream:
            plain = stream.read(_ARCHIVE_LIMIT + 1)
        if len(plain) > _ARCHIVE_LIMIT:
            raise tarfile.TarError(f"it holds more than {_ARCHIVE_LIMIT >> 20} MiB")
        with tarfile.open(fileobj=io.BytesIO(plain), mode="r:") as archive:
            _refuse_links(archive.getmembers())
            archive.extractall(directory, filter="data")
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError) as error:
        raise DetError(f"the recorded code cannot be unpacked into {directory}: {error}") from error


def _refuse_links(members: Iterable[tarfile.TarInfo]) -> None:
    for member in members:
        if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE) or member.issparse():
            raise tarfile.TarError(f"{member.name!r} is neither a file nor a directory")
