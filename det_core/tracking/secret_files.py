"""The secrets of recorded configs: one file each, under ``DET_HOME``, and a reference to it in the record.

Configs that hold the same secret share its file, so a new key is written to one place.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import TypeVar, cast

from det_core.errors import SecretMissing
from det_core.home import private_directory
from det_core.interfaces.secrets import REFERENCE_PREFIX, SECRET_REFERENCE, Secret, map_text, texts

T = TypeVar("T")


def keep(config: T) -> T:
    """A copy of JSON values that may be recorded: a reference for each `Secret`, which is in its file on return."""
    known = references(config)
    return cast("T", map_text(config, lambda text: known[text] if isinstance(text, Secret) else text))


def references(config: object) -> dict[str, str]:
    """Each `Secret` in JSON values -> its reference, with which the secret is in its file on return."""
    return {text: _refer(text) for _, text in texts(config) if isinstance(text, Secret)}


def fill(config: T) -> T:
    """A copy of JSON values with the secret for each reference.

    Raises:
        SecretMissing: at least one is not in its file; names them all.
    """
    missing = find_missing(config)
    if missing:
        raise SecretMissing(missing)
    return cast("T", map_text(config, lambda text: SECRET_REFERENCE.sub(lambda found: _read(found.group()), text)))


def find_missing(config: object) -> dict[str, Path]:
    """The secrets of a recorded config that this host cannot read: where each stands in the config -> its file."""
    found = [
        (".".join(map(str, location)), _file(reference))
        for location, text in texts(config)
        for reference in SECRET_REFERENCE.findall(text)
    ]
    return {place: path for place, path in found if not os.access(path, os.R_OK)}


def write(path: Path, secret: str) -> None:
    """Write a secret's file, for the eyes of this user alone; it is whole and durable on return."""
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


def _refer(secret: Secret) -> str:
    value = secret[len(secret.public) :]
    same = (path for path in sorted(_directory().glob("[0-9a-f]" * 32)) if _text(path) == value)
    path = next(same, None)
    if path is None:
        path = _directory() / uuid.uuid4().hex
        write(path, value)
    return f"{secret.public}{REFERENCE_PREFIX}{path.name}"


def _read(reference: str) -> str:
    return _text(_file(reference))


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8").removesuffix("\n")


def _file(reference: str) -> Path:
    return _directory() / reference.partition(":")[2]


def _directory() -> Path:
    return private_directory("secrets")


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
