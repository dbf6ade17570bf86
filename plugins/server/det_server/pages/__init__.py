"""Pages of the server, one module each. Endpoints are thin over the tracking store."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator

from starlette.routing import BaseRoute, Route

from det_server._threads import Work, in_threads
from det_server.pages import (
    _actions,
    accounts,
    code,
    compare,
    curves,
    experiment,
    experiments,
    importance,
    live,
    logs,
    media,
    models,
    plugins,
    search,
    trial,
    utilization,
)

_MODULES = (
    *(experiments, experiment, search, code, trial, logs, media, compare, models, plugins, accounts, _actions),
    *(curves, importance, utilization, live),
)


def _in_threads(routes: Iterable[Route]) -> Iterator[Route]:
    """Yield routes whose endpoints run in the threads of pages, unless they have chosen others themselves."""
    for route in routes:
        has_own = inspect.iscoroutinefunction(route.endpoint)
        yield route if has_own else Route(route.path, in_threads(Work.PAGES, route.endpoint))


ROUTES: list[BaseRoute] = [route for one in _MODULES for route in _in_threads(one.ROUTES)]
"""Routes of all pages."""
