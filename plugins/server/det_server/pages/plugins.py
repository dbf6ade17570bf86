"""Page with the installed plugins."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from det_core.plugins import KINDS, PluginReport, plugin_registry
from det_server._rendering import render_page


def show_plugins(request: Request) -> Response:
    """Show the distributions with plugins that are installed where the server runs."""
    rows = [(report, _offers(report)) for report in plugin_registry().reports]
    return render_page(request, "plugins.html", rows=rows)


def _offers(report: PluginReport) -> list[tuple[str, str]]:
    """Return the kinds of plugins of a distribution, each with the names."""
    names = {kind: [spec.name for its_kind, spec in report.provides if its_kind == kind] for kind in KINDS}
    names["hook"] = list(report.hooks)
    return [(kind.replace("_", " "), ", ".join(offered)) for kind, offered in names.items() if offered]


ROUTES = [Route("/plugins", show_plugins)]
