"""Exceptions that old code raises or catches, as far as det has none with the same constructor."""

from __future__ import annotations

from typing import Any

from det_core.errors import InvalidExperimentException

__all__ = ["InvalidConfigurationException", "InvalidDataTypeException"]


class InvalidDataTypeException(InvalidExperimentException):
    """An object is of a type that a trial cannot use."""

    def __init__(self, typ: type, message: str) -> None:
        super().__init__(f"Invalid data type ({typ.__name__}): {message}.")


class InvalidConfigurationException(InvalidExperimentException):
    """A config cannot be used."""

    def __init__(self, config: dict[str, Any], message: str) -> None:
        super().__init__(f"Invalid configuration ({config}): {message}.")
