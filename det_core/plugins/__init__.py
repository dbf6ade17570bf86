"""Find, load, register and report on plugins."""

from __future__ import annotations

from det_core.plugins._events import emit as emit
from det_core.plugins._markers import hookimpl as hookimpl
from det_core.plugins._registry import KINDS as KINDS
from det_core.plugins._registry import PluginReport as PluginReport
from det_core.plugins._registry import Registry as Registry
from det_core.plugins._registry import registry as registry

__all__ = ["KINDS", "PluginReport", "Registry", "emit", "hookimpl", "registry"]
