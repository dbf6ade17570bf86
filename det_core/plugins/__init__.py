"""Discovery, registration, loading and diagnosis of plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from det_core.lazy import exports

if TYPE_CHECKING:
    from det_core.plugins._events import emit as emit
    from det_core.plugins._fit import misfit as misfit
    from det_core.plugins._markers import hookimpl as hookimpl
    from det_core.plugins._overlaps import overlaps as overlaps
    from det_core.plugins._registry import KINDS as KINDS
    from det_core.plugins._registry import PluginReport as PluginReport
    from det_core.plugins._registry import Registry as Registry
    from det_core.plugins._registry import no_exit as no_exit
    from det_core.plugins._registry import normalize as normalize
    from det_core.plugins._registry import registry as registry
    from det_core.plugins._registry import resolve as resolve

_EXPORTS = {
    "KINDS": "det_core.plugins._registry",
    "PluginReport": "det_core.plugins._registry",
    "Registry": "det_core.plugins._registry",
    "emit": "det_core.plugins._events",
    "hookimpl": "det_core.plugins._markers",
    "misfit": "det_core.plugins._fit",
    "no_exit": "det_core.plugins._registry",
    "normalize": "det_core.plugins._registry",
    "overlaps": "det_core.plugins._overlaps",
    "registry": "det_core.plugins._registry",
    "resolve": "det_core.plugins._registry",
}

__all__ = [*_EXPORTS]

__getattr__, __dir__ = exports(globals(), _EXPORTS)  # a plugin needs hookimpl only; a script, nothing until it reports
