"""Helpers that old scripts import from ``determined.common`` and ``determined.common.util``."""

from __future__ import annotations

import io
import logging
import sys
from typing import IO, Any

from ruamel import yaml as yaml

from det_core import LOG_FORMAT

__all__ = ["safe_load_yaml_with_exceptions", "set_logger", "yaml", "yaml_safe_dump", "yaml_safe_load"]

_LEGACY_TRAINING = "training"
_LEGACY_VALIDATION = "validation"


def set_logger(debug_enabled: bool) -> None:
    """Send the log of this process to its standard output, in det's format.

    Args:
        debug_enabled: whether to include messages for debugging.
    """
    logging.basicConfig(
        level=logging.DEBUG if debug_enabled else logging.INFO, format=LOG_FORMAT, stream=sys.stdout, force=True
    )


def yaml_safe_load(f: IO[Any] | str) -> Any:
    """Return the value of a YAML text or file."""
    return _loader().load(f)


def yaml_safe_dump(data: Any, stream: IO[Any] | None = None, default_flow_style: bool | None = None) -> str | None:
    """Write a value as YAML, or return the text.

    Args:
        data: value to write.
        stream: file to write to. If it is None, the text is returned.
        default_flow_style: whether to write collections in one line.
    """
    target = stream or io.StringIO()
    dumper = _loader()
    dumper.default_flow_style = default_flow_style
    dumper.dump(data, target)
    return target.getvalue() if isinstance(target, io.StringIO) and stream is None else None


def safe_load_yaml_with_exceptions(yaml_file: IO[Any] | str) -> Any:
    """Return the value of a YAML text or file, or end the program with a message if it is invalid."""
    try:
        return yaml_safe_load(yaml_file)
    except yaml.error.MarkedYAMLError as error:
        sys.exit(f"invalid YAML: {error}")


def _loader() -> Any:
    return yaml.YAML(typ="safe", pure=True)
