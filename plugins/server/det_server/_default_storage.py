"""Default checkpoint storage of a server, for experiments whose config names none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from det_core.config import parse_config
from det_core.core import open_storage_block
from det_core.errors import DetError
from det_core.interfaces.secrets import Secret, iter_texts
from det_core.interfaces.storage import RETENTION_KEYS
from det_core.storage import check_storage, is_bucket

_KEY = "checkpoint_storage"


def read_default_storage(file: Path) -> Mapping[str, Any]:
    """Read the block ``checkpoint_storage`` of a YAML file, and check that the storage works.

    Raises:
        DetError: the file cannot be read, or the storage cannot be used.
    """
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DetError(f"--checkpoint-storage {file} cannot be read: {error}") from None
    block = document.get(_KEY) if isinstance(document, dict) else None
    if not isinstance(block, dict) or "type" not in block or document.keys() != {_KEY}:
        raise DetError(
            f"--checkpoint-storage {file}: expected nothing but a block as in the config of an experiment, such as\n"
            f"{_KEY}:\n  type: s3\n  bucket: checkpoints"
        )
    check_storage(open_storage_block(block))
    return block


def offer_storage(block: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the block of a bucket without secrets, for clients that have credentials of their own.

    Returns:
        The block, or None if it is that of a directory, which clients do not have.
    """
    if not is_bucket(open_storage_block(block)):
        return None
    searcher = {"name": "single", "metric": "any", "max_length": {"batches": 1}}
    marked = parse_config({"searcher": searcher, _KEY: block}).dump()[_KEY]
    has_secret = {str(location[0]) for location, text in iter_texts(marked) if isinstance(text, Secret)}
    return {key: value for key, value in block.items() if key not in has_secret}


def add_default_storage(config: Mapping[str, Any], default: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return a config whose ``checkpoint_storage`` is the default if it names no type.

    Args:
        config: the config.
        default: the block of the server, or None for a directory next to its database.

    Raises:
        DetError: the config changes options of the default, whose secrets would go to another place.
    """
    block = config.get(_KEY) or {}
    if default is None or not isinstance(block, Mapping) or "type" in block:
        return config
    if changed := [str(key) for key in block if key not in RETENTION_KEYS]:
        raise DetError(
            f"{_KEY} has {', '.join(changed)}, but no type; expected a whole block, or only the numbers of checkpoints "
            "to keep in the storage of this server, such as save_trial_best"
        )
    return {**config, _KEY: {**default, **block}}
