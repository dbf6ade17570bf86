"""Pages of the model registry."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from det_server._csv_export import csv_response, read_in_parts
from det_server._rendering import render_page
from det_server._site import site_of
from det_server.pages._actions import completed_checkpoint
from det_server.pages._store_values import model_of, store_of

_MOST_MODELS, _MOST_VERSIONS = 500, 100
_COLUMNS = ("name", "description", "versions", "labels", "owner", "creation_time", "last_updated_time", "archived")


def show_models(request: Request) -> Response:
    """Show the models whose names contain the text of the URL."""
    name, archived = request.query_params.get("name", ""), request.query_params.get("archived") == "yes"
    only = None if archived else False
    models = store_of(request).models(name=name, archived=only, limit=_MOST_MODELS, brief=True)
    return render_page(request, "models.html", models=models, name=name, archived=archived)


def export_models(request: Request) -> Response:
    """Return all models as CSV."""
    models = read_in_parts(partial(store_of(request).models, brief=True))
    rows = ([getattr(model, name) for name in _COLUMNS] for model in models)
    return csv_response("models.csv", _COLUMNS, rows)


def show_model(request: Request) -> Response:
    """Show a model with its latest versions, the newest first."""
    store = store_of(request)
    model = model_of(request)
    versions = store.model_versions(model.id, limit=_MOST_VERSIONS, brief=True)[::-1]
    trials = site_of(request).store.trials_of_checkpoints({one.checkpoint_uuid for one in versions})
    return render_page(request, "model.html", model=model, versions=versions, trials=trials)


def ask_registration(request: Request) -> Response:
    """Ask for the model of which a checkpoint becomes a version."""
    uuid, trial_id = completed_checkpoint(request)
    models = store_of(request).models(archived=False, limit=_MOST_MODELS, brief=True)
    return render_page(request, "register.html", uuid=uuid, trial_id=trial_id, models=models)


ROUTES = [
    Route("/models", show_models),
    Route("/models.csv", export_models),
    Route("/models/{id:int}", show_model),
    Route("/checkpoints/{uuid}/register", ask_registration),
]
