"""All routes of the server's application."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from det_server import actions, api, pages
from starlette.routing import Route


def all_routes(parameter: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    """Yield a method and a path of every route, those of files included.

    Args:
        parameter: function that returns a value for a parameter of a path with this type, ``int`` or ``str``.
    """
    for route in (*api.ROUTES, *actions.ROUTES, *pages.ROUTES):
        assert isinstance(route, Route), f"{route} is not a plain route, so this test does not see what is below it"
        path = re.sub(r"{\w+(?::(\w+))?}", lambda found: parameter(found[1] or "str"), route.path)
        for method in sorted(route.methods or ()):
            yield method, path
    yield from (("GET", "/static/det.css"), ("GET", "/no-such-page"), ("POST", "/no-such-page"), ("DELETE", "/models"))
    yield from (("OPTIONS", "/experiments"), ("TRACE", "/experiments"), ("PUT", "/api/experiments"))
