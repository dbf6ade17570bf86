"""Actions on models."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from det_core.interfaces.records import CheckpointState
from det_server._accounts import make_change, require_writer
from det_server._forms import read_form
from det_server._refusal import RefusedError
from det_server._site import principal_of, site_of
from det_server.actions._record_changes import Change, show
from det_server.pages._store_values import require_uuid

_ID = re.compile(r"[1-9][0-9]{0,17}")


def create_model(request: Request) -> Response:
    """Register a checkpoint as a version of a model that exists or of a new one, or create a model without versions."""
    require_writer(request)
    form, store, owner = read_form(request), site_of(request).store, principal_of(request).name
    checkpoint, known = form.get("checkpoint"), form.get("model")
    if checkpoint:  # raise an error before the model exists
        found = store.checkpoint(require_uuid(checkpoint, 400))
        if found.state is not CheckpointState.COMPLETED:
            raise RefusedError(409, f"checkpoint {checkpoint} is {found.state}; expected one that is COMPLETED")
    if known and not _ID.fullmatch(known):
        raise RefusedError(400, f"model: expected the id of a model, got {known:.100}")
    if known:
        model = store.model(int(known))
    else:
        create = partial(store.create_model, form.require("name"), description=form.get("description"), owner=owner)
        model = make_change(request, "create", lambda created: f"model {created.id}", create)
    if checkpoint:
        add = partial(store.add_model_version, model.id, checkpoint, comment=form.get("comment"), owner=owner)
        make_change(request, "add version", f"model {model.id}", add)
    return show("model", model.id)


def add_version(request: Request) -> Response:
    """Register a checkpoint as the next version of a model."""
    require_writer(request)
    model_id, form = request.path_params["id"], read_form(request)
    add = partial(
        site_of(request).store.add_model_version,
        model_id,
        require_uuid(form.require("checkpoint"), 400),
        version_name=form.get("name"),
        comment=form.get("comment"),
        owner=principal_of(request).name,
    )
    make_change(request, "add version", f"model {model_id}", add)
    return show("model", model_id)


CHANGES: Mapping[str, Change] = {
    "notes": lambda request, store, one: store.edit_model(one, notes=read_form(request).get("notes")),
    "archive": lambda _, store, one: store.edit_model(one, archived=True),
    "unarchive": lambda _, store, one: store.edit_model(one, archived=False),
}
"""Names of the actions on models, mapped to what they do."""
