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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

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


class _File(NamedTuple):
    """File of a secret in one of its places."""

    block: Location
    location: Location
    reference: str
    path: Path

    @property
    def place(self) -> str:
        """Return the location for people, such as ``checkpoint_storage.secret_key``."""
        return ".".join(map(str, self.location))


def extract_secrets(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a config with a reference for each `Secret`, so that it can be stored.

    All secrets are in their files on return.

    Args:
        config: a JSON-compatible config, or some of its blocks by their keys.
    """
    return replace_secrets(config, store_secrets(config))


def store_secrets(config: Mapping[str, Any], *, shared: bool = True) -> dict[str, str]:
    """Return the reference of each `Secret` in a config. All secrets are in their files on return.

    Args:
        config: a JSON-compatible config, or some of its blocks by their keys.
        shared: whether a secret has the id that it has elsewhere. `delete_secrets` is for those that have not.
    """
    found = {location: text for location, text in iter_texts(config) if isinstance(text, Secret)}
    ids = _ids_by_secret() if shared and found else {}
    references: dict[str, str] = {
        secret: f"{secret.public}{REFERENCE_PREFIX}{ids.setdefault(_value(secret), uuid.uuid4().hex)}"
        for secret in dict.fromkeys(found.values())
    }
    for file in _iter_files(replace_secrets(config, references)):
        if file.location in found and not file.path.exists():
            write_secret(file.path, _value(found[file.location]))
    return references


def replace_secrets(config: Mapping[str, Any], references: Mapping[str, str]) -> dict[str, Any]:
    """Return a copy of a config with a reference for each `Secret`, as `store_secrets` has returned them."""
    changed: dict[str, Any] = map_text(config, lambda text: references[text] if isinstance(text, Secret) else text)
    return changed


def renew_places(recorded: Mapping[str, Any], present: Mapping[str, Any]) -> None:
    """Keep the secrets of a recorded config also for the places that they have in its present form.

    Args:
        recorded: the config as an earlier release may have recorded it.
        present: the same, with the keys that this release has added.
    """
    texts = dict[tuple[Location, str], str]()
    for file in _iter_files(recorded):
        if (text := _read(file.path)) is not None:
            texts[file.block, file.reference] = texts[file.location, file.reference] = text
    for file in _iter_files(present):
        before = texts.get((file.location, file.reference), texts.get((file.block, file.reference)))
        if before is not None and not file.path.exists():
            write_secret(file.path, before)


def delete_secrets(config: Mapping[str, Any]) -> None:
    """Delete the files of the secrets that blocks of a stored config refer to."""
    for file in _iter_files(config):
        file.path.unlink(missing_ok=True)


def resolve_secrets(config: Mapping[str, Any], kind: type[str] = str) -> dict[str, Any]:
    """Return a copy of a config with the secret for each reference, except where all see what is there.

    Args:
        config: a JSON-compatible config, or some of its blocks by their keys.
        kind: class of the texts that contain a secret.

    Raises:
        SecretMissing: the files of some secrets cannot be read, or are for other places. The error names them.
    """
    texts = {(file.location, file.reference): text for file, text in _require_texts(config)}

    def fill(value: Any, location: Location) -> Any:
        if isinstance(value, Mapping):
            return {key: fill(item, (*location, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [fill(item, (*location, index)) for index, item in enumerate(value)]
        if not isinstance(value, str) or not SECRET_REFERENCE.search(value):
            return value
        return kind(SECRET_REFERENCE.sub(lambda found: texts[location, found.group()], value))

    return {key: value if key in OPEN_KEYS else fill(value, (key,)) for key, value in config.items()}


def find_missing_secrets(config: Mapping[str, Any]) -> dict[str, Path]:
    """Return the secrets of a stored config that this host cannot read, as files by their place in the config."""
    return {file.place: file.path for file in _iter_files(config) if _read(file.path) is None}


def read_secrets(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the secrets that a stored config refers to, by the names of their files.

    Raises:
        SecretMissing: as for `resolve_secrets`.
    """
    return {file.path.name: text for file, text in _require_texts(config)}


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


def _value(secret: Secret) -> str:
    return secret[len(secret.public) :]


def _ids_by_secret() -> dict[str, str]:
    """Return the ids of the secrets of this user, without those of which somebody has changed a part of the files."""
    texts: dict[str, set[str | None]] = {}
    for path in sorted(_directory().glob(f"{_ID}-{_ID}")):
        texts.setdefault(path.name[:32], set()).add(_read(path))
    return {text: identity for identity, (text, *others) in reversed(texts.items()) if text is not None and not others}


def _require_texts(config: Mapping[str, Any]) -> list[tuple[_File, str]]:
    """Return the files of all secrets that a stored config refers to with the secrets, or raise SecretMissing."""
    texts = {file: _read(file.path) for file in _iter_files(config)}
    if missing := {file.place: file.path for file, text in texts.items() if text is None}:
        raise SecretMissing(missing)
    return [(file, text) for file, text in texts.items() if text is not None]


def _iter_files(config: Mapping[str, Any]) -> Iterator[_File]:
    """Yield the file of each reference in a stored config."""
    for prefix, block in _iter_blocks(config):
        around = None
        for location, reference in iter_references(block, prefix):
            around = around or hashlib.sha256(_dump(block, checkpoints=prefix == ("checkpoint_storage",)))
            place = around.copy()
            place.update(json.dumps([str(part) for part in location]).encode())
            name = f"{reference.removeprefix(REFERENCE_PREFIX)}-{place.hexdigest()[:32]}"
            given = Path(os.environ.get(SECRETS_DIRECTORY_VARIABLE, os.devnull), name)
            yield _File(prefix, location, reference, given if given.exists() else _directory() / name)


def _iter_blocks(config: Mapping[str, Any]) -> Iterator[tuple[Location, Any]]:
    """Yield the parts of a config that use their secrets by themselves, with their locations."""
    for key, value in config.items():
        if key == "observers" and isinstance(value, Mapping):
            yield from (((key, name), block) for name, block in value.items())
        elif key not in OPEN_KEYS:
            yield (key,), value


def _dump(block: Any, *, checkpoints: bool) -> bytes:
    """Return a recorded block as JSON, without the numbers of checkpoints to keep, which may be changed."""
    if checkpoints and isinstance(block, Mapping):
        block = {key: value for key, value in block.items() if key not in RETENTION_KEYS}
    return json.dumps(block, sort_keys=True).encode()


def _read(path: Path) -> str | None:
    """Return the secret in a file, or None if there is none, or if it cannot be read."""
    try:
        return path.read_bytes().decode("utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError):
        return None


def _directory() -> Path:
    return private_directory("secrets")


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
