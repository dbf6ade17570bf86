"""Pages of the server, one module each. Endpoints are thin over the tracking store."""

from __future__ import annotations

from itertools import chain

from starlette.routing import BaseRoute

from det_server.pages import (
    _actions,
    accounts,
    code,
    compare,
    curves,
    experiment,
    experiments,
    live,
    models,
    plugins,
    search,
    trial,
    utilization,
)

_MODULES = (
    *(experiments, experiment, search, code, trial, compare, models, plugins, accounts, _actions),
    *(curves, utilization, live),
)
ROUTES: list[BaseRoute] = list(chain.from_iterable(one.ROUTES for one in _MODULES))
"""Routes of all pages."""
