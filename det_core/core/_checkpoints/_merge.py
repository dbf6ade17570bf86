"""Merging of the files and the metadata that several ranks contribute to one checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from det_core import storage


@dataclass(frozen=True)
class RankFiles:
    """Files that one rank contributes."""

    files: Mapping[str, int]
    """Sizes in bytes by path. Paths of directories end in ``/``."""
    directory: tuple[str, int, int] | None = None
    """Identity of their directory (host, device, inode), which is stored once if several ranks pass it.

    None if the directory cannot, or must not, be recognized as the same.
    """


def merge_metadata(by_rank: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
    """Merge the mappings of all ranks recursively. Other values under the same key must be equal.

    Args:
        by_rank: the mapping of each rank, in order of rank.

    Raises:
        RuntimeError: two values differ. The message names the key and the ranks.
    """
    united: dict[str, Any] = {}
    origins: dict[str, int] = {}
    for rank, metadata in enumerate(by_rank):
        _merge_into(united, metadata or {}, "", rank, origins)
    return united


def _merge_into(into: dict[str, Any], new: Mapping[str, Any], path: str, rank: int, origins: dict[str, int]) -> None:
    for key, value in new.items():
        where = f"{path}/{key}"
        if key not in into:
            origins[where] = rank
            into[key] = {}
            if not isinstance(value, Mapping):
                into[key] = value
                continue
        if isinstance(value, Mapping) and isinstance(into[key], dict):
            _merge_into(into[key], value, where, rank, origins)
        elif into[key] != value and json.dumps(into[key]) != json.dumps(value):  # NaN differs from itself
            raise RuntimeError(
                f"metadata conflict: {where} is {into[key]!r} on rank {origins[where]} and {value!r} on rank {rank}; "
                "pass equal values, or pass the key on one rank only"
            )


def find_owners(offers: Sequence[RankFiles]) -> dict[str, list[int]]:
    """Return the ranks that have each path. Among ranks that share a directory, only the first counts.

    If several ranks have a file, its sizes are equal, but the caller has yet to compare the contents.

    Args:
        offers: the files of each rank, in order of rank.

    Raises:
        RuntimeError: a path is a file on one rank and a directory on another, or the sizes of a file differ. The
            message names the path and the ranks.
    """
    found: dict[str, list[int]] = {}
    directories: dict[str, int] = {}
    for rank, offer in _distinct(offers):
        for path in offer.files:
            found.setdefault(path, []).append(rank)
            parents = storage.parent_directories(path)
            directories.update((parent, rank) for parent in parents if parent not in directories)
    for path, ranks in found.items():
        if f"{path}/" in directories:
            raise _conflict(path, ranks[0], directories[f"{path}/"], "a file", "a directory")
        if f"{path}/" in found:
            raise _conflict(path, ranks[0], found[f"{path}/"][0], "a file", "a directory")
        for other in ranks[1:]:
            sizes = offers[ranks[0]].files[path], offers[other].files[path]
            if sizes[0] != sizes[1]:
                raise _conflict(path, ranks[0], other, *(f"{size} bytes" for size in sizes))
    return found


def check_same_content(checksums: Sequence[Mapping[str, Any]]) -> None:
    """Check that files of several ranks have the same content on all of them.

    Args:
        checksums: for each rank, the checksums by path of the files that it shares with other ranks.

    Raises:
        RuntimeError: a file differs between ranks. The message names the path and the ranks.
    """
    first: dict[str, tuple[int, Any]] = {}
    for rank, sums in enumerate(checksums):
        for path, checksum in sums.items():
            other, expected = first.setdefault(path, (rank, checksum))
            if checksum != expected:
                raise _conflict(path, other, rank, "one file", "a different file of the same size")


def _distinct(offers: Sequence[RankFiles]) -> Iterator[tuple[int, RankFiles]]:
    seen: set[tuple[str, int, int]] = set()
    for rank, offer in enumerate(offers):
        if offer.directory not in seen:
            yield rank, offer
        if offer.directory is not None:
            seen.add(offer.directory)


def _conflict(path: str, one: int, other: int, is_there: str, is_here: str) -> RuntimeError:
    return RuntimeError(
        f"file conflict: {path!r} is {is_there} on rank {one} and {is_here} on rank {other}; "
        "give the files of each rank different names, or pass a selector"
    )
