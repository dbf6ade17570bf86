"""Files with the secrets of stored configs, under ``DET_HOME``.

Configs in the tracking store contain references to these files. Configs with the same secret share its file, so that a
new key is written to one place. Webhooks have files of their own, which are deleted with them.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from det_core.errors import SecretMissing
from det_core.home import private_directory
from det_core.interfaces.secrets import (
    OPEN_KEYS,
    REFERENCE_PREFIX,
    SECRET_REFERENCE,
    Secret,
    iter_references,
    iter_texts,
    map_text,
)

T = TypeVar("T")

SECRETS_DIRECTORY_VARIABLE = "DET_SECRETS_DIR"
"""Environment variable of workers with the directory for the secrets of their config. Others are in ``DET_HOME``."""

_ALONE = ".alone"
"""End of the names of files that belong to a single config."""


def extract_secrets(config: T) -> T:
    """Return a copy of a config with a reference for each `Secret`, so that it can be stored.

    All secrets are in their files on return.

    Args:
        config: a JSON-compatible value.
    """
    known = store_secrets(config)
    return cast("T", map_text(config, lambda text: known[text] if isinstance(text, Secret) else text))


def store_secrets(config: object, *, shared: bool = True) -> dict[str, str]:
    """Return the reference of each `Secret` in a config. All secrets are in their files on return.

    Args:
        config: a JSON-compatible value.
        shared: whether other configs with the same secret use its file. `delete_secrets` deletes those that are not
            shared.
    """
    return {text: _refer(text, shared=shared) for _, text in iter_texts(config) if isinstance(text, Secret)}


def delete_secrets(config: object) -> None:
    """Delete the files of the secrets that a stored config refers to and shares with no other config."""
    for _, path in _iter_files(config):
        if path.suffix == _ALONE:
            path.unlink(missing_ok=True)


def resolve_secrets(config: T) -> T:
    """Return a copy of a config with the secret for each reference.

    Args:
        config: a JSON-compatible value.

    Raises:
        SecretMissing: the files of some secrets cannot be read. The error names all of them.
    """
    _require_files(config)
    return cast(
        "T", map_text(config, lambda text: SECRET_REFERENCE.sub(lambda found: _text(_file(found.group())), text))
    )


def resolve_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a whole config with the secret for each reference, except where all see what is there.

    Raises:
        SecretMissing: as for `resolve_secrets`.
    """
    secret = resolve_secrets({key: value for key, value in config.items() if key not in OPEN_KEYS})
    return {key: secret.get(key, value) for key, value in config.items()}


def find_missing_secrets(config: object) -> dict[str, Path]:
    """Return the secrets of a stored config that this host cannot read, as files by their place in the config."""
    return {place: path for place, path in _iter_files(config) if not os.access(path, os.R_OK)}


def read_secrets(config: object) -> dict[str, str]:
    """Return the secrets that a stored config refers to, by the names of their files.

    Raises:
        SecretMissing: the files of some secrets cannot be read.
    """
    return {path.name: _text(path) for path in _require_files(config)}


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


def _refer(secret: Secret, *, shared: bool) -> str:
    value = secret[len(secret.public) :]
    same = (path for path in sorted(_directory().glob("[0-9a-f]" * 32)) if shared and _text(path) == value)
    path = next(same, None)
    if path is None:
        path = _directory() / (uuid.uuid4().hex + ("" if shared else _ALONE))
        write_secret(path, value)
    return f"{secret.public}{REFERENCE_PREFIX}{path.stem}"


def _require_files(config: object) -> set[Path]:
    """Return the files of all secrets that a stored config refers to, or raise SecretMissing."""
    if missing := find_missing_secrets(config):
        raise SecretMissing(missing)
    return {path for _, path in _iter_files(config)}


def _iter_files(config: object) -> Iterator[tuple[str, Path]]:
    """Yield the place of each reference in a stored config, and its file."""
    for location, reference in iter_references(config):
        yield ".".join(map(str, location)), _file(reference)


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8").removesuffix("\n")


def _file(reference: str) -> Path:
    name = reference.partition(":")[2]
    given = Path(os.environ.get(SECRETS_DIRECTORY_VARIABLE, os.devnull), name)
    alone = _directory() / f"{name}{_ALONE}"
    return next((path for path in (given, alone) if path.exists()), _directory() / name)


def _directory() -> Path:
    return private_directory("secrets")


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
