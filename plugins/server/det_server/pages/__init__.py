"""Pages of the server, one module each. Endpoints are thin over the tracking store."""

from __future__ import annotations

from itertools import chain

from starlette.routing import BaseRoute

from det_server.pages import _actions, curves, experiment, experiments, live

ROUTES: list[BaseRoute] = list(
    chain.from_iterable(one.ROUTES for one in (experiments, experiment, _actions, curves, live))
)
"""Routes of all pages."""
