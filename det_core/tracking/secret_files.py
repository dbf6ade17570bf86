"""Files with the secrets of stored configs, under ``DET_HOME``.

Configs in the tracking store contain references to these files. The store is no place to trust: whoever may write a
config or a checkpoint could name the secret of somebody else, and a host to send it to. A file is therefore found only
from the place where its secret was: the key, and the rest of the block, such as the URL of the storage. Its name is
``ID-PLACE``. A secret has the same id in all places of this user, so that ``ID-*`` are the files to edit for a new one.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Set
from functools import cache
from pathlib import Path
from typing import Any

from det_core.errors import SecretMissing
from det_core.home import private_directory
from det_core.interfaces.secrets import (
    OPEN_KEYS,
    REFERENCE_PREFIX,
    SECRET_REFERENCE,
    Location,
    Secret,
    iter_references,
    iter_texts,
    map_text,
)
from det_core.interfaces.storage import RETENTION_KEYS

SECRETS_DIRECTORY_VARIABLE = "DET_SECRETS_DIR"
"""Environment variable of workers with the directory for the secrets of their config. Others are in ``DET_HOME``."""

_ID = "[0-9a-f]" * 32


def extract_secrets(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a config with a reference for each `Secret`, so that it can be stored.

    All secrets are in their files on return.

    Args:
        config: a JSON-compatible config, or some of its blocks by their keys.
    """
    known = store_secrets(config)
    changed: dict[str, Any] = map_text(config, lambda text: known[text] if isinstance(text, Secret) else text)
    return changed


def store_secrets(config: Mapping[str, Any], *, shared: bool = True) -> dict[str, str]:
    """Return the reference of each `Secret` in a config. All secrets are in their files on return.

    Args:
        config: a JSON-compatible config, or some of its blocks by their keys.
        shared: whether a secret has the id that it has elsewhere. `delete_secrets` is for those that have not.
    """
    places: dict[Secret, set[str]] = {}
    for prefix, block, place_of in _iter_blocks(config):
        for location, text in iter_texts(block, prefix):
            if isinstance(text, Secret):
                places.setdefault(text, set()).add(place_of(location))
    return {secret: _store(secret, found, shared=shared) for secret, found in places.items()}


def delete_secrets(config: Mapping[str, Any]) -> None:
    """Delete the files of the secrets that blocks of a stored config refer to, and that have no other places."""
    for _, _, path in _iter_files(config):
        path.unlink(missing_ok=True)


def resolve_secrets(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a config with the secret for each reference, except where all see what is there.

    Args:
        config: a JSON-compatible config, or some of its blocks by their keys.

    Raises:
        SecretMissing: as for `find_secrets`.
    """
    known = find_secrets(config)
    return {key: value if key in OPEN_KEYS else fill_secrets(value, known) for key, value in config.items()}


def find_secrets(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the secrets that a config refers to, by their references.

    Args:
        config: a JSON-compatible config, or some of its blocks by their keys.

    Raises:
        SecretMissing: the files of some secrets cannot be read, or are for other places. The error names all of them.
    """
    return {reference: _text(path) for reference, path in _require_files(config)}


def fill_secrets(value: Any, secrets: Mapping[str, str]) -> Any:
    """Return a copy of JSON values with the secret for each reference.

    Args:
        value: a part of a config.
        secrets: secrets of that config, as from `find_secrets`.
    """
    return map_text(value, lambda text: SECRET_REFERENCE.sub(lambda found: secrets[found.group()], text))


def find_missing_secrets(config: Mapping[str, Any]) -> dict[str, Path]:
    """Return the secrets of a stored config that this host cannot read, as files by their place in the config."""
    return {where: path for where, _, path in _iter_files(config) if not os.access(path, os.R_OK)}


def read_secrets(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the secrets that a stored config refers to, by the names of their files.

    Raises:
        SecretMissing: as for `find_secrets`.
    """
    return {path.name: _text(path) for _, path in _require_files(config)}


def write_secret(path: Path, secret: str) -> None:
    """Write a secret to a file that only this user can read. The file is complete and durable on return."""
    partial = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8", newline="") as file:  # noqa: PTH123  (a descriptor has no path)
            file.write(f"{secret}\n")
            file.flush()
            os.fsync(descriptor)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    for directory in (path.parent, path.parent.parent):
        _sync(directory)


def _store(secret: Secret, places: Set[str], *, shared: bool) -> str:
    """Write a secret to the files of its places that are missing, and return its reference."""
    value, directory = secret[len(secret.public) :], _directory()
    same = (path.name[:32] for path in sorted(directory.glob(f"{_ID}-{_ID}")) if shared and _text(path) == value)
    for identity in (*same, uuid.uuid4().hex):
        files = [directory / f"{identity}-{place}" for place in sorted(places)]
        missing = [path for path in files if not path.exists()]
        if all(path in missing or _text(path) == value for path in files):  # nobody has written a new secret there
            break
    for path in missing:
        write_secret(path, value)
    return f"{secret.public}{REFERENCE_PREFIX}{identity}"


def _require_files(config: Mapping[str, Any]) -> list[tuple[str, Path]]:
    """Return the references of a stored config with their files, or raise SecretMissing."""
    if missing := find_missing_secrets(config):
        raise SecretMissing(missing)
    return [(reference, path) for _, reference, path in _iter_files(config)]


def _iter_files(config: Mapping[str, Any]) -> Iterator[tuple[str, str, Path]]:
    """Yield the place of each reference in a stored config, the reference, and its file."""
    for prefix, block, place_of in _iter_blocks(config):
        for location, reference in iter_references(block, prefix):
            name = f"{reference.removeprefix(REFERENCE_PREFIX)}-{place_of(location)}"
            given = Path(os.environ.get(SECRETS_DIRECTORY_VARIABLE, os.devnull), name)
            yield ".".join(map(str, location)), reference, given if given.exists() else _directory() / name


def _iter_blocks(config: Mapping[str, Any]) -> Iterator[tuple[Location, Any, Callable[[Location], str]]]:
    """Yield the parts of a config that use their secrets by themselves.

    Yields:
        The location of a part, the part, and a function that returns the place of a secret at a location.
    """
    for key, value in config.items():
        if key in OPEN_KEYS:
            continue
        each = key == "observers" and isinstance(value, Mapping)
        for prefix, block in {(key, name): part for name, part in value.items()}.items() if each else [((key,), value)]:
            yield prefix, block, _places_in(block)


def _places_in(block: Any) -> Callable[[Location], str]:
    """Return a function that returns the place of a secret by its location in a block."""
    around = cache(lambda: json.dumps(_without_secrets(block), sort_keys=True))

    def place_of(location: Location) -> str:
        return hashlib.sha256(json.dumps([location, around()]).encode()).hexdigest()[:32]

    return place_of


def _without_secrets(value: Any) -> Any:
    """Return a block without secrets, without what is unset, and without the numbers of checkpoints to keep."""
    if isinstance(value, str):
        return value.public if isinstance(value, Secret) else SECRET_REFERENCE.sub("", value)
    if isinstance(value, Mapping):
        parts = {key: _without_secrets(item) for key, item in value.items() if key not in RETENTION_KEYS}
        return {key: part for key, part in parts.items() if part not in (None, [], {}, "")}
    if isinstance(value, (list, tuple)):
        return [_without_secrets(item) for item in value]
    return value


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8").removesuffix("\n")


def _directory() -> Path:
    return private_directory("secrets")


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
