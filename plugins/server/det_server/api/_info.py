"""Endpoint that says which server this is, and who calls."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from det_core.errors import StaleRun
from det_core.version import __version__
from det_server._accounts import caller_of
from det_server._json_response import JsonResponse
from det_server._refusal import RefusedError
from det_server._site import principal_of, site_of


def show_info(request: Request) -> Response:
    """Answer with the release, the id of the store, the caller, and the storage for what its machine trains.

    Raises:
        RefusedError: the caller is a run that has ended.
    """
    try:
        caller_of(request).check_run(site_of(request).store)
    except StaleRun as error:
        raise RefusedError(401, str(error)) from None
    principal = principal_of(request)
    return JsonResponse(
        {
            "version": __version__,
            "cluster_id": site_of(request).store.cluster_id,
            "checkpoint_storage": site_of(request).offered_storage,
            "user": principal.name,
            "role": principal.role.value,
        }
    )
