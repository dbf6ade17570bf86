"""Checkpoint storage from a path, a URI, a config block or the default."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

from det_core import storage
from det_core.errors import StorageError
from det_core.home import default_storage
from det_core.interfaces.secrets import find_credentials, iter_references, mask_texts
from det_core.interfaces.storage import RETENTION_KEYS, StorageManager
from det_core.tracking.secret_files import resolve_secrets

_BUCKETS = {"s3": "s3", "gs": "gcs"}
"""Names of storage plugins by URI scheme."""


def open_storage_block(recorded: Mapping[str, Any]) -> StorageManager:
    """Open the storage of a recorded ``checkpoint_storage`` block.

    Args:
        recorded: the block as the tracking store contains it.

    Raises:
        SecretMissing: the block refers to a secret that is not on this host, or that was recorded for another block.
        StorageError: the plugin no longer accepts the recorded options.
        PluginError: the plugin is missing.
    """
    has_references = any(iter_references(recorded))
    whole = resolve_secrets({"checkpoint_storage": recorded})["checkpoint_storage"]
    options = without_numbers(whole)
    path = Path(options.pop("container_path", ""))
    if options == {"type": "directory"} and path.is_absolute() and not has_references:
        from det_core.storage.directory import DirectoryStorage  # without plugins and the models of their configs

        return DirectoryStorage(_Directory(path))
    from pydantic import ValidationError

    from det_core.config import CheckpointStorageConfig, explain_block

    try:
        block = CheckpointStorageConfig.model_validate(whole)
    except ValidationError as error:
        if has_references:  # what would be quoted may be a part of a secret
            names = sorted({str(one["loc"][-1]) for one in error.errors(include_input=False) if one["loc"]})
            problems = f"{', '.join(names) or 'the options'}: the values are not accepted; correct them"
        else:
            problems = explain_block(error, "checkpoint_storage", whole)
    else:
        return storage.open_storage(block.type, block.options)
    raise StorageError(f"cannot open the recorded checkpoint_storage: {problems}")


def without_numbers(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return a ``checkpoint_storage`` block without the numbers of checkpoints to keep and without unset options."""
    return {key: value for key, value in block.items() if value is not None and key not in RETENTION_KEYS}


@dataclass(frozen=True)
class _Directory:
    base: Path
    is_local: ClassVar[bool] = True


def make_storage_block(given: str | os.PathLike[str] | Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the ``checkpoint_storage`` block for a path, a URI, a block or None.

    Args:
        given: a directory, ``file:///directory``, ``s3://bucket/prefix``, ``gs://bucket/prefix``, a block as in
            the config, or None for the default.

    Raises:
        ValueError: ``given`` is none of these, or a block of type shared_fs.
    """
    if given is None or given == "":
        return default_storage()
    if isinstance(given, Mapping):
        if given.get("type") == "shared_fs":
            raise ValueError(
                "checkpoint_storage of type shared_fs belongs in an experiment config; pass the directory here, "
                f"for example {given.get('host_path', '/mnt/checkpoints')!r}"
            )
        return given
    text = os.fspath(given)
    if "://" not in text or text.startswith("/"):
        return {"type": "directory", "container_path": text}
    uri = urlsplit(text)
    plain = not (uri.query or uri.fragment or "@" in uri.netloc)
    if plain and uri.scheme in _BUCKETS and uri.netloc:
        return {"type": _BUCKETS[uri.scheme], "bucket": uri.netloc, "prefix": uri.path.strip("/")}
    if plain and uri.scheme == "file" and uri.path and not uri.netloc:
        return {"type": "directory", "container_path": unquote(uri.path)}
    raise ValueError(
        f"checkpoint_storage is {mask_texts(text, find_credentials(text))!r}; expected a directory, file:///directory, "
        "s3://bucket/prefix, gs://bucket/prefix, or a mapping as in the experiment config"
    )
