"""Actions on models."""

from __future__ import annotations

import re
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from det_server._accounts import record_action, require_writer
from det_server._forms import read_form
from det_server._refusal import RefusedError
from det_server._site import principal_of, site_of
from det_server.pages._store_values import UUID

_ID = re.compile(r"[1-9][0-9]{0,17}")


def create_model(request: Request) -> Response:
    """Register a checkpoint as a version of a model that exists or of a new one, or create a model without versions."""
    require_writer(request)
    form, store, owner = read_form(request), site_of(request).store, principal_of(request).name
    checkpoint, known = form.get("checkpoint"), form.get("model")
    if checkpoint:
        store.checkpoint(require_uuid(checkpoint))  # raises an error before the model exists
    if known and not _ID.fullmatch(known):
        raise RefusedError(400, f"model: expected the id of a model, got {known:.100}")
    model = (
        store.model(int(known))
        if known
        else store.create_model(form.require("name"), description=form.get("description"), owner=owner)
    )
    if checkpoint:
        store.add_model_version(model.id, checkpoint, comment=form.get("comment"), owner=owner)
    return _done(request, "add version" if checkpoint else "create", model.id)


def add_version(request: Request) -> Response:
    """Register a checkpoint as the next version of a model."""
    require_writer(request)
    model_id, form = request.path_params["model_id"], read_form(request)
    site_of(request).store.add_model_version(
        model_id,
        require_uuid(form.require("checkpoint")),
        version_name=form.get("name"),
        comment=form.get("comment"),
        owner=principal_of(request).name,
    )
    return _done(request, "add version", model_id)


def set_notes(request: Request) -> Response:
    """Replace the notes on a model."""
    require_writer(request)
    model_id = request.path_params["model_id"]
    site_of(request).store.edit_model(model_id, notes=read_form(request).get("notes"))
    return _done(request, "notes", model_id)


def set_archived(action: str, archived: bool) -> Callable[[Request], Response]:
    """Return an endpoint that puts a model aside or takes it back.

    Args:
        action: name of the action in the audit log.
        archived: whether the model is put aside.
    """

    def archive(request: Request) -> Response:
        require_writer(request)
        model_id = request.path_params["model_id"]
        site_of(request).store.edit_model(model_id, archived=archived)
        return _done(request, action, model_id)

    return archive


def require_uuid(uuid: str) -> str:
    """Return the id of a checkpoint.

    Raises:
        RefusedError: it cannot be one.
    """
    if not UUID.fullmatch(uuid):
        raise RefusedError(400, f"{uuid:.100} is not the id of a checkpoint; the page of its trial shows it")
    return uuid


def _done(request: Request, action: str, model_id: int) -> Response:
    record_action(request, action, f"model {model_id}")
    return RedirectResponse(f"/models/{model_id}", 303)
