"""The context directory (the user's code) as a gzipped tar file."""

from __future__ import annotations

import io
import re
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from det_core.core.context_dir import IGNORE_FILE, context_files
from det_core.disk_errors import explain_disk_error
from det_core.errors import DetError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["EMPTY_CONTEXT", "open_archive", "pack_context_dir", "unpack_context_dir"]

MAX_CONTEXT_BYTES = 96 << 20
"""Maximum total size of the files of a context directory in bytes."""
_ARCHIVE_LIMIT = 2 * MAX_CONTEXT_BYTES
"""Maximum size of the uncompressed tar file in bytes, headers included."""
MAX_CONTEXT_FILES = 50_000
"""Maximum number of files and directories in an archive. Unpacking that many takes seconds, however small they are."""
_MAX_LEVELS = 100
"""Maximum number of directories of a name. Many more could be neither unpacked nor removed recursively."""
_SIZE, _TYPE = slice(124, 136), slice(156, 157)
"""Positions of the size and of the type in a header."""
_PAX_TYPES, _EXTENDED_TYPES = b"xgX", b"xgXLK"
"""Types of the extended headers that have records, and of all. They describe the members that follow."""
_LONGEST_EXTENDED = 10 << 10
"""Maximum size of an extended header in bytes, which has room for two paths of 4096 bytes."""
_MOST_DIGITS = 100_000_000
"""Maximum sum of the squared lengths of all numbers in extended headers, because older releases of Python search each
of them in quadratic time (CVE-2024-6232)."""
_MOST_RECORDS = 10 * MAX_CONTEXT_FILES
"""Maximum number of records in all extended headers, each of which has a few, because ``tarfile`` takes a microsecond
for each."""
_NUMBER = re.compile(rb"[0-9]+")
_RECORD = re.compile(rb"([0-9]{1,5}) (?:path|linkpath|size|[ug]id|[ug]name|[mac]time|comment|hdrcharset)=")
"""Beginning of a record, with its length. Records with any names could take any memory."""
_GZIP = 31
"""Format of compressed data for ``zlib``."""
_CHUNK = 1 << 20
"""Number of bytes that are decompressed at once. The whole limit would need twice that memory."""
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
    # ValueError of a name with a null byte, OverflowError of a time in the far future
    except (tarfile.TarError, OSError, ValueError, OverflowError) as error:
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
    for chunk in _decompress(content):
        plain.write(chunk)
        if plain.tell() > _ARCHIVE_LIMIT:
            raise tarfile.ReadError(f"it holds more than {_ARCHIVE_LIMIT >> 20} MiB")
    plain.seek(0)
    return _BoundedArchive.open(fileobj=plain, mode="r:", tarinfo=_CheckedHeader)


def _decompress(content: bytes) -> Iterator[bytes]:
    """Yield the data of the only member of a gzip file. Each of any number of empty ones would take time."""
    stream = zlib.decompressobj(wbits=_GZIP)
    try:
        for begin in range(0, len(content), _CHUNK):
            piece = content[begin : begin + _CHUNK]
            while piece:
                yield stream.decompress(piece, _CHUNK)
                piece = stream.unconsumed_tail
                if stream.unused_data:
                    raise tarfile.ReadError("other data follow its compressed data")
        yield stream.flush()
    except zlib.error as error:
        raise tarfile.ReadError(f"it is not a gzip file: {error}") from None
    if not stream.eof:
        raise tarfile.ReadError("its compressed data are truncated")


class _BoundedArchive(tarfile.TarFile):
    """Tar file with at most `MAX_CONTEXT_FILES` members, whose extended headers are as those that `tarfile` writes."""

    members: list[tarfile.TarInfo]  # those that were read, an attribute that typeshed lacks
    _extended = _digits = _records = 0

    def next(self) -> tarfile.TarInfo | None:
        if len(self.members) > MAX_CONTEXT_FILES:
            raise tarfile.ReadError(f"it holds more than {MAX_CONTEXT_FILES} files and directories")
        try:
            return super().next()
        except (ValueError, RecursionError) as error:  # each header of a header is read in a call of its own
            raise tarfile.ReadError(f"its headers are malformed: {error}") from error

    def check_extended(self, kind: bytes, size: int) -> None:
        """Check the extended header at the position of the file, of which ``tarfile`` would read anything."""
        if not 0 <= size <= _LONGEST_EXTENDED:
            raise tarfile.ReadError(f"it has an extended header of {size} bytes; expected at most {_LONGEST_EXTENDED}")
        self._extended += 1
        if self._extended > 2 * MAX_CONTEXT_FILES:
            raise tarfile.ReadError(f"it has more than {2 * MAX_CONTEXT_FILES} extended headers")
        if kind in _PAX_TYPES:
            blocks = -(-size // tarfile.BLOCKSIZE)
            records = self.fileobj.read(blocks * tarfile.BLOCKSIZE).rstrip(b"\0")
            self._records += _count_records(records)
            self._digits += sum(len(number) ** 2 for number in _NUMBER.findall(records))
        if self._digits > _MOST_DIGITS:
            raise tarfile.ReadError("its extended headers have too many long numbers")
        if self._records > _MOST_RECORDS:
            raise tarfile.ReadError(f"its extended headers have more than {_MOST_RECORDS} records")


class _CheckedHeader(tarfile.TarInfo):
    """Header of a `_BoundedArchive`."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        assert isinstance(archive, _BoundedArchive)
        begin = archive.fileobj.tell()
        header = archive.fileobj.read(tarfile.BLOCKSIZE)
        if header[_TYPE] == tarfile.GNUTYPE_SPARSE:  # a header is enough to claim any size
            raise tarfile.ReadError("it has a sparse file")
        if header[_TYPE] and header[_TYPE] in _EXTENDED_TYPES:
            archive.check_extended(header[_TYPE], int(header[_SIZE].rstrip(b"\0"), 8))
        archive.fileobj.seek(begin)
        member = super().fromtarfile(archive)
        if member.size < 0:  # older releases of Python would go back to an earlier header (CVE-2025-8194)
            raise tarfile.ReadError(f"{member.name:.100} has a negative size")
        return member


def _count_records(content: bytes) -> int:
    """Return the number of records in an extended header, which must be of the usual attributes of files."""
    begin = count = 0
    while begin < len(content):
        record = _RECORD.match(content, begin)
        end = begin + int(record[1]) if record else 0
        if not record or end <= record.end() or content[end - 1 : end] != b"\n":
            raise tarfile.ReadError(
                f"it has an extended header with {content[begin : begin + 50]!r}; "
                "expected only records such as path, size and mtime"
            )
        begin = end
        count += 1
    return count


def _check_members(members: Iterable[tarfile.TarInfo]) -> None:
    for member in members:
        if _is_deep(member.name):
            raise tarfile.TarError(f"{member.name:.100} is nested more than {_MAX_LEVELS} levels deep")
        if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE):
            raise tarfile.TarError(f"{member.name!r} is neither a file nor a directory")


def _is_deep(name: str) -> bool:
    return name.count("/") > _MAX_LEVELS
