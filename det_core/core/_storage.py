"""The ``checkpoint_storage`` of those who write no config: a path, a URI, or nothing."""

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
from det_core.interfaces.storage import StorageManager
from det_core.tracking.secret_files import fill

_BUCKETS = {"s3": "s3", "gs": "gcs"}
"""URI scheme -> the registered name of the store."""


def open_block(recorded: Mapping[str, Any]) -> StorageManager:
    """The store of a ``checkpoint_storage`` block as the record has it.

    Raises:
        SecretMissing: it refers to a secret that is not on this host.
        StorageError: its plugin does not take the recorded options any more.
        PluginError: its plugin is missing.
    """
    from pydantic import ValidationError

    from det_core.config import CheckpointStorageConfig, explain_block

    whole = fill({"checkpoint_storage": recorded})["checkpoint_storage"]
    try:
        block = CheckpointStorageConfig.model_validate(whole)
    except ValidationError as error:
        problems = explain_block(error, "checkpoint_storage", whole)
    else:
        return storage.open_storage(block.type, block.options)
    raise StorageError(f"cannot open the recorded checkpoint_storage: {problems}")


def open_directory(block: Mapping[str, Any]) -> StorageManager:
    """Open the default store, without the plugins and the models of their configs."""
    from det_core.storage.directory import DirectoryStorage

    return DirectoryStorage(_Directory(Path(block["container_path"])))


@dataclass(frozen=True)
class _Directory:
    base: Path
    is_local: ClassVar[bool] = True


def storage_block(given: str | os.PathLike[str] | Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The config block that is meant.

    Args:
        given: a directory, ``file:///directory``, ``s3://bucket/prefix``, ``gs://bucket/prefix``, a block as in
            the config, or None for the default.

    Raises:
        ValueError: anything else.
    """
    if given is None or given == "":
        return default_storage()
    if isinstance(given, Mapping):
        if given.get("type") == "shared_fs":
            raise ValueError(
                "checkpoint_storage of type shared_fs belongs in an experiment config; here give the directory, "
                f"for example {given.get('host_path', '/mnt/checkpoints')!r}"
            )
        return given
    text = os.fspath(given)
    if "://" not in text:
        return {"type": "directory", "container_path": text}
    uri = urlsplit(text)
    plain = not (uri.query or uri.fragment)
    if plain and uri.scheme in _BUCKETS and uri.netloc:
        return {"type": _BUCKETS[uri.scheme], "bucket": uri.netloc, "prefix": uri.path.strip("/")}
    if plain and uri.scheme == "file" and uri.path and not uri.netloc:
        return {"type": "directory", "container_path": unquote(uri.path)}
    raise ValueError(
        f"checkpoint_storage is {text!r}; expected a directory, file:///directory, s3://bucket/prefix, "
        "gs://bucket/prefix, or a mapping as in the experiment config"
    )
