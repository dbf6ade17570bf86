"""The context directory (the user's code) as a gzipped tar file."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

from det_core.core.context_dir import IGNORE_FILE, context_files
from det_core.disk_errors import explain_disk_error
from det_core.errors import DetError

__all__ = ["EMPTY_CONTEXT", "open_archive", "pack_context_dir", "unpack_context_dir"]

MAX_CONTEXT_BYTES = 96 << 20
"""Maximum total size of the files of a context directory in bytes."""
_ARCHIVE_LIMIT = 2 * MAX_CONTEXT_BYTES
"""Maximum size of the uncompressed tar file in bytes, headers included."""
MAX_CONTEXT_FILES = 50_000
"""Maximum number of files and directories in an archive. Unpacking that many takes seconds, however small they are."""
_MAX_LEVELS = 100
"""Maximum number of directories of a name. Many more could be neither unpacked nor removed recursively."""
_CHUNK = 1 << 20
_YAML = (".yaml", ".yml", ".json")


def pack_context_dir(directory: Path, hide: Callable[[str], str] = str) -> bytes:
    """Pack the files that `context_files` finds. Links are replaced by the files that they lead to.

    Args:
        directory: the context directory.
        hide: function that returns the text of a YAML or JSON file without its secrets.

    Returns:
        The content of the archive.

    Raises:
        DetError: the directory does not exist or is ``DET_HOME``, or its files exceed the limits.
    """
    if not directory.is_dir():
        raise DetError(f"the context directory {str(directory)!r} does not exist; give the directory with your code")
    files = list(context_files(directory))
    if deep := next(filter(_is_deep, files), None):
        raise DetError(
            f"{deep:.100} in the context directory {str(directory)!r} is nested more than {_MAX_LEVELS} levels deep; "
            f"list it in its file {IGNORE_FILE}"
        )
    if len(files) > MAX_CONTEXT_FILES:
        raise DetError(
            f"the context directory {str(directory)!r} has {len(files)} files, the limit is {MAX_CONTEXT_FILES}; "
            f"list data and outputs in its file {IGNORE_FILE}"
        )
    total = sum((directory / name).stat().st_size for name in files)
    if total > MAX_CONTEXT_BYTES:
        raise DetError(
            f"the context directory {str(directory)!r} holds {total >> 20} MiB, "
            f"the limit is {MAX_CONTEXT_BYTES >> 20} MiB; "
            f"list data and outputs in its file {IGNORE_FILE}"
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
                f"{archive.offset >> 20} MiB, the limit is {_ARCHIVE_LIMIT >> 20} MiB; list data and outputs in its "
                f"file {IGNORE_FILE}"
            )
    return buffer.getvalue()


def _pack_nothing() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz"):
        pass
    return buffer.getvalue()


EMPTY_CONTEXT = _pack_nothing()
"""Content of the archive of an empty context directory."""


def _add_hidden(archive: tarfile.TarFile, path: Path, name: str, hide: Callable[[str], str]) -> None:
    member = archive.gettarinfo(path, name)
    content = hide(path.read_bytes().decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def unpack_context_dir(content: bytes, directory: Path) -> None:
    """Unpack an archive into an existing directory.

    Nothing is written outside of the directory, and no more than `pack_context_dir` allows.

    Args:
        content: the content of the archive.
        directory: the existing directory.

    Raises:
        DiskError: the disk is full, over a quota, read-only or broken.
        DetError: the archive was not made by `pack_context_dir`.
    """
    try:
        with open_archive(content) as archive:
            _check_members(archive.getmembers())
            archive.extractall(directory, filter="data")
    except (tarfile.TarError, OSError, ValueError) as error:  # ValueError of a name with a null byte
        if disk_error := explain_disk_error(error, directory):
            raise disk_error from error
        raise DetError(f"the recorded code cannot be unpacked into {directory}: {error}") from error


def open_archive(content: bytes) -> tarfile.TarFile:
    """Open an archive, of which no more is read than `pack_context_dir` allows.

    Args:
        content: the content of the archive.

    Raises:
        tarfile.TarError: it is damaged or too large. Its members may raise this, too, when they are read.
    """
    plain = io.BytesIO()
    try:
        with gzip.open(io.BytesIO(content)) as stream:
            while chunk := stream.read(_CHUNK):  # the whole limit at once would need that memory
                plain.write(chunk)
                if plain.tell() > _ARCHIVE_LIMIT:
                    raise tarfile.ReadError(f"it holds more than {_ARCHIVE_LIMIT >> 20} MiB")
    except (OSError, EOFError, zlib.error) as error:
        raise tarfile.ReadError(str(error)) from error
    plain.seek(0)
    return _BoundedArchive.open(fileobj=plain, mode="r:")


class _BoundedArchive(tarfile.TarFile):
    """Tar file with at most `MAX_CONTEXT_FILES` members."""

    members: list[tarfile.TarInfo]  # those that were read, an attribute that typeshed lacks

    def next(self) -> tarfile.TarInfo | None:
        if len(self.members) > MAX_CONTEXT_FILES:
            raise tarfile.ReadError(f"it holds more than {MAX_CONTEXT_FILES} files and directories")
        try:
            return super().next()
        except (ValueError, RecursionError) as error:  # each header of a header is read in a call of its own
            raise tarfile.ReadError(f"its headers are malformed: {error}") from error


def _check_members(members: Iterable[tarfile.TarInfo]) -> None:
    for member in members:
        if _is_deep(member.name):
            raise tarfile.TarError(f"{member.name:.100} is nested more than {_MAX_LEVELS} levels deep")
        if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE) or member.issparse():
            raise tarfile.TarError(f"{member.name!r} is neither a file nor a directory")


def _is_deep(name: str) -> bool:
    return name.count("/") > _MAX_LEVELS
