"""The marker of hook implementations."""

from __future__ import annotations

import pluggy

hookimpl = pluggy.HookimplMarker("det")
"""Decorator for the functions of a plugin's entry-point module that implement hooks (`det_core.hookspecs`)."""
