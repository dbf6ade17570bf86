"""Libraries that only some users need. Each is an extra of det-core, as in ``pip install 'det-core[tls]'``."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

from det_core.package_commands import package_command


@dataclass(frozen=True)
class Extra:
    """Library of one extra."""

    module: str
    """Module whose presence shows that the extra is installed."""
    library: str
    """Name of the library for people."""
    purpose: str
    """Noun phrase, in the plural, for what needs the library."""


EXTRAS = {
    "cli": Extra("rich", "rich", "live progress and colours in a terminal"),
    "gpu": Extra("pynvml", "nvidia-ml-py", "metrics of NVIDIA GPUs"),
    "pandas": Extra("pandas", "pandas", "data frames of metrics and trials"),
    "plot": Extra("matplotlib", "matplotlib", "plots of learning curves"),
    "postgresql": Extra("psycopg", "psycopg", "tracking stores in PostgreSQL"),
    "tls": Extra("cryptography", "cryptography", "encrypted connections between hosts"),
}
"""Extras of det-core by name, except those that install plugins or tools for development."""


def has_extra(name: str) -> bool:
    """Return whether the library of an extra is installed, without importing it."""
    return importlib.util.find_spec(EXTRAS[name].module) is not None


def explain_missing_extra(name: str) -> str:
    """Return a sentence that says what needs the library of an extra, and how to install it."""
    extra, command = EXTRAS[name], package_command("install", f"det-core[{name}]")
    return f"{extra.purpose} need {extra.library}, which is not installed; type: {command}"
