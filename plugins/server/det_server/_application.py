"""Application of all routes behind their admission."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from det_core.errors import (
    DetError,
    ExperimentBusy,
    RecordExists,
    RecordInUse,
    RecordNotFound,
    SecretMissing,
    StoreBusy,
    StoreCorrupt,
    TrackingError,
)
from det_server import actions, api, pages
from det_server._admission import Admission
from det_server._allowed_origins import AllowedHosts
from det_server._download_log import DownloadLog
from det_server._json_response import JsonResponse
from det_server._refusal import API, UNUSABLE_STORE, RefusedError
from det_server._rendering import STATIC_DIRECTORY, render_error
from det_server._shares import Shares
from det_server._site import Site
from det_server._threads import Threads
from det_server.api import Deletions

_log = logging.getLogger("det.server")

_DATA = (API, "/data/", "/live", "/metrics")
"""Beginnings of the paths that scripts and programs read, whose errors are JSON."""
_STATUS = {
    RecordNotFound: 404,
    RecordExists: 409,
    RecordInUse: 409,
    ExperimentBusy: 409,
    StoreBusy: 503,
    StoreCorrupt: 500,
    ValueError: 400,
    TrackingError: 409,
    DetError: 400,
}
"""HTTP status of the errors of endpoints, most special first."""


def make_application(site: Site, hosts: AllowedHosts, *, behind_proxy: bool, cookie: str) -> ASGIApp:
    """Return the application.

    Args:
        site: parts that all requests share.
        hosts: names of this server.
        behind_proxy: whether all requests come from a reverse proxy.
        cookie: name of the cookie.
    """
    routes = [
        *api.ROUTES,
        *pages.ROUTES,
        *actions.ROUTES,
        Mount("/static", StaticFiles(directory=STATIC_DIRECTORY)),
    ]
    app = Starlette(routes=routes, lifespan=_lifespan)
    app.router.redirect_slashes = False
    app.state.site = site
    app.state.cookie = cookie
    app.state.threads = threads = Threads()
    app.state.downloads = Shares()
    app.state.download_log = DownloadLog()
    app.state.exports = Shares()
    app.state.deletions = Deletions(threads)
    app.add_exception_handler(HTTPException, _explain_status)
    app.add_exception_handler(RefusedError, _explain_refusal)
    for kind in (DetError, ValueError):
        app.add_exception_handler(kind, _explain_error)
    app.add_exception_handler(OverflowError, _explain_overflow)
    app.add_exception_handler(500, _explain_failure)
    return Admission(app, site, hosts, threads, behind_proxy=behind_proxy, cookie=cookie)


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    site = cast("Site", app.state.site)
    site.keeper.start()
    yield
    site.importances.close()
    await site.changes.close()
    await run_in_threadpool(site.keeper.stop)


def _explain_status(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    hints = {
        404: "It may have been deleted.",
        405: "Use the buttons of det's pages.",
    }
    message = f"There is no page {request.url.path[:200]}." if error.status_code == 404 else str(error.detail)
    return _explain(request, error.status_code, message, hints.get(error.status_code, ""))


def _explain_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)
    response = _explain(request, error.status, str(error))
    response.headers.update(error.headers or {})
    return response


def _explain_error(request: Request, error: Exception) -> Response:
    status = next(code for kind, code in _STATUS.items() if isinstance(error, kind))
    if isinstance(error, TrackingError) and not hasattr(request.state, "principal"):
        _log.warning("cannot answer a stranger: %s", error)
        return _explain(request, status, UNUSABLE_STORE)
    if isinstance(error, SecretMissing):  # whose message names files of the server
        where = f"{error.places}: this server has no secret for that"
        return _explain(request, status, f"{where}. If you have changed a block of the config, write its secrets again")
    return _explain(request, status, str(error))


def _explain_overflow(request: Request, error: Exception) -> Response:
    """Answer to an id that is larger than any of the database."""
    return _explain(request, 404, f"a number is too large: {error}")


def _explain_failure(request: Request, error: Exception) -> Response:
    return _explain(request, 500, "The server failed to answer.", "Its log has the details. Please report this.")


def _explain(request: Request, status: int, message: str, hint: str = "") -> Response:
    if request.url.path.startswith(_DATA):
        return JsonResponse({"error": message}, status)
    return render_error(request, status, message, hint)
