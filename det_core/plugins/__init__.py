"""Discovery, registration, loading and diagnosis of plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from det_core.lazy import lazy_exports

if TYPE_CHECKING:
    from det_core.hookspecs import hookimpl as hookimpl
    from det_core.plugins._events import emit_event as emit_event
    from det_core.plugins._events import has_event_hooks as has_event_hooks
    from det_core.plugins._events import report_failed_hooks as report_failed_hooks
    from det_core.plugins._installation_checks import ImportCost as ImportCost
    from det_core.plugins._installation_checks import find_overwritten_files as find_overwritten_files
    from det_core.plugins._installation_checks import measure_import as measure_import
    from det_core.plugins._registry import KINDS as KINDS
    from det_core.plugins._registry import PluginReport as PluginReport
    from det_core.plugins._registry import Registry as Registry
    from det_core.plugins._registry import import_target as import_target
    from det_core.plugins._registry import no_exit as no_exit
    from det_core.plugins._registry import normalize_distribution_name as normalize_distribution_name
    from det_core.plugins._registry import plugin_registry as plugin_registry
    from det_core.plugins._target_checks import answer_mismatch as answer_mismatch
    from det_core.plugins._target_checks import misspelled_methods as misspelled_methods

_EXPORTS = {
    "KINDS": "det_core.plugins._registry",
    "PluginReport": "det_core.plugins._registry",
    "Registry": "det_core.plugins._registry",
    "emit_event": "det_core.plugins._events",
    "has_event_hooks": "det_core.plugins._events",
    "report_failed_hooks": "det_core.plugins._events",
    "hookimpl": "det_core.hookspecs",
    "ImportCost": "det_core.plugins._installation_checks",
    "measure_import": "det_core.plugins._installation_checks",
    "answer_mismatch": "det_core.plugins._target_checks",
    "misspelled_methods": "det_core.plugins._target_checks",
    "no_exit": "det_core.plugins._registry",
    "normalize_distribution_name": "det_core.plugins._registry",
    "find_overwritten_files": "det_core.plugins._installation_checks",
    "plugin_registry": "det_core.plugins._registry",
    "import_target": "det_core.plugins._registry",
}

_OWN = {
    "ImportCost",
    "answer_mismatch",
    "emit_event",
    "find_overwritten_files",
    "has_event_hooks",
    "hookimpl",
    "measure_import",
    "misspelled_methods",
    "no_exit",
    "normalize_distribution_name",
    "report_failed_hooks",
}
"""Names for the modules of det-core, which the contract does not promise."""

__all__ = [name for name in _EXPORTS if name not in _OWN]

__getattr__, __dir__ = lazy_exports(
    globals(), _EXPORTS
)  # a plugin needs hookimpl only; a script, nothing until it reports
