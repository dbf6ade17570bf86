"""Discovery, registration, loading and diagnosis of plugins."""

from __future__ import annotations

import pluggy

hookimpl = pluggy.HookimplMarker("det")
"""Decorator for the functions of a plugin's entry-point module that implement hooks (`det_core.hookspecs`)."""

from det_core.plugins._events import emit  # noqa: E402  (plugins import hookimpl from here)
from det_core.plugins._fit import misfit  # noqa: E402
from det_core.plugins._overlaps import overlaps  # noqa: E402
from det_core.plugins._registry import (  # noqa: E402
    KINDS,
    PluginReport,
    Registry,
    no_exit,
    normalize,
    registry,
    resolve,
)

__all__ = [
    "KINDS",
    "PluginReport",
    "Registry",
    "emit",
    "hookimpl",
    "misfit",
    "no_exit",
    "normalize",
    "overlaps",
    "registry",
    "resolve",
]
