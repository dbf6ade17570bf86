"""One checkpoint from what several ranks bring: metadata united, and for every file the rank that stores it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Offer:
    """What one rank brings."""

    files: Mapping[str, int]
    """Path -> size in bytes; empty directories end in ``/``."""
    directory: tuple[str, int, int] | None = None
    """Which directory they are from (host, device, inode), if other ranks may bring the very same one."""


def merge_metadata(by_rank: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
    """Unite mappings recursively; anything else that several ranks bring must be equal.

    Raises:
        RuntimeError: it differs; names the key and the ranks.
    """
    united: dict[str, Any] = {}
    origins: dict[str, int] = {}
    for rank, metadata in enumerate(by_rank):
        _unite(united, metadata or {}, "", rank, origins)
    return united


def _unite(into: dict[str, Any], new: Mapping[str, Any], path: str, rank: int, origins: dict[str, int]) -> None:
    for key, value in new.items():
        where = f"{path}/{key}"
        if key not in into:
            origins[where] = rank
            into[key] = {}
            if not isinstance(value, Mapping):
                into[key] = value
                continue
        if isinstance(value, Mapping) and isinstance(into[key], dict):
            _unite(into[key], value, where, rank, origins)
        elif into[key] != value and json.dumps(into[key]) != json.dumps(value):  # equal NaNs are not equal
            raise RuntimeError(
                f"metadata conflict: {where} is {into[key]!r} on rank {origins[where]} and {value!r} on rank {rank}; "
                "pass equal values, or pass the key on one rank only"
            )


def owners(offers: Sequence[Offer]) -> dict[str, list[int]]:
    """The ranks that bring each path; of ranks with the same directory only the first counts.

    Where there are several, the files have equal sizes, and their contents are still to be compared. A directory
    that is empty on one rank and not on another is not empty.

    Raises:
        RuntimeError: a path is a file on one rank and a directory on another, or files differ in size; names them.
    """
    found: dict[str, list[int]] = {}
    directories: dict[str, int] = {}
    for rank, offer in _distinct(offers):
        for path in offer.files:
            found.setdefault(path, []).append(rank)
            directories.update((parent, rank) for parent in _parents(path) if parent not in directories)
    for path, ranks in found.items():
        if f"{path}/" in directories:
            raise _conflict(path, ranks[0], directories[f"{path}/"], "a file", "a directory")
        if f"{path}/" in found:
            raise _conflict(path, ranks[0], found[f"{path}/"][0], "a file", "a directory")
        for other in ranks[1:]:
            sizes = offers[ranks[0]].files[path], offers[other].files[path]
            if sizes[0] != sizes[1]:
                raise _conflict(path, ranks[0], other, *(f"{size} bytes" for size in sizes))
    return {path: ranks for path, ranks in found.items() if path not in directories}


def compare(checksums: Sequence[Mapping[str, Any]]) -> None:
    """Refuse paths whose contents differ between ranks.

    Args:
        checksums: for each rank, of the paths that it shares with others.

    Raises:
        RuntimeError: names the path and the ranks.
    """
    first: dict[str, tuple[int, Any]] = {}
    for rank, sums in enumerate(checksums):
        for path, checksum in sums.items():
            other, expected = first.setdefault(path, (rank, checksum))
            if checksum != expected:
                raise _conflict(path, other, rank, "other content", "of the same size")


def _distinct(offers: Sequence[Offer]) -> Iterator[tuple[int, Offer]]:
    seen: set[tuple[str, int, int]] = set()
    for rank, offer in enumerate(offers):
        if offer.directory not in seen:
            yield rank, offer
        if offer.directory is not None:
            seen.add(offer.directory)


def _parents(path: str) -> Iterator[str]:
    """``a/b/c`` and ``a/b/c/`` -> ``a/``, ``a/b/``."""
    end = path.find("/")
    while -1 < end < len(path) - 1:
        yield path[: end + 1]
        end = path.find("/", end + 1)


def _conflict(path: str, one: int, other: int, is_there: str, is_here: str) -> RuntimeError:
    return RuntimeError(
        f"file conflict: {path!r} is {is_there} on rank {one} and {is_here} on rank {other}; "
        "give each rank's files names of their own, or pass a selector"
    )
