"""The context directory (the user's code) as a gzipped tar file."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pathspec

from det_core.errors import DetError

LIMIT = 96 << 20
"""Bytes of files that a context directory may hold."""
IGNORE_FILE = ".detignore"
_YAML = (".yaml", ".yml", ".json")
_ALWAYS_IGNORED = ("__pycache__/", ".git/", ".venv/", ".ipynb_checkpoints/")


def pack(directory: Path, hide: Callable[[str], str] = str) -> bytes:
    """Pack a directory, without what its ``.detignore`` (in the syntax of gitignore) names.

    Args:
        hide: takes the text of each YAML or JSON file, and returns it without secrets.

    Raises:
        DetError: it is no directory, or its files exceed the limit.
    """
    if not directory.is_dir():
        raise DetError(f"the context directory {str(directory)!r} does not exist; give the directory with your code")
    files = list(_files(directory))
    total = sum((directory / name).stat().st_size for name in files)
    if total > LIMIT:
        raise DetError(
            f"the context directory {str(directory)!r} holds {total >> 20} MiB, the limit is {LIMIT >> 20} MiB; "
            f"name data and outputs in a file {IGNORE_FILE} there"
        )
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        for name in files:
            if name.endswith(_YAML):
                _add_hidden(archive, directory / name, name, hide)
            else:
                archive.add(directory / name, name, recursive=False)
    return buffer.getvalue()


def _add_hidden(archive: tarfile.TarFile, path: Path, name: str, hide: Callable[[str], str]) -> None:
    member = archive.gettarinfo(path, name)
    content = b""
    if member.isreg():  # and no link
        content = hide(path.read_text("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def unpack(content: bytes, directory: Path) -> None:
    """Unpack into an existing directory; nothing is ever written outside it."""
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        archive.extractall(directory, filter="data")


def _files(directory: Path) -> Iterator[str]:
    ignore_file = directory / IGNORE_FILE
    patterns = ignore_file.read_text().splitlines() if ignore_file.is_file() else []
    ignored = pathspec.GitIgnoreSpec.from_lines([*_ALWAYS_IGNORED, *patterns])
    for name in sorted(ignored.match_tree_files(directory, negate=True)):
        if (directory / name).is_file():  # a dangling link is nothing to train on
            yield name
