"""Actions of the forms on pages. Each answers with a redirect to a page, and is recorded in the audit log."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from det_core.interfaces.records import State
from det_server.actions import _account, _experiments, _models, _sessions, _users

Endpoint = Callable[[Request], Response]

_POSTS: Mapping[str, Endpoint] = {
    "/login": _sessions.log_in,
    "/logout": _sessions.log_out,
    "/experiments/{experiment_id:int}/pause": _experiments.request_stop("pause", State.PAUSED),
    "/experiments/{experiment_id:int}/cancel": _experiments.request_stop("cancel", State.STOPPING_CANCELED),
    "/experiments/{experiment_id:int}/kill": _experiments.request_stop("kill", State.STOPPING_KILLED),
    "/experiments/{experiment_id:int}/resume": _experiments.resume,
    "/experiments/{experiment_id:int}/archive": _experiments.set_archived("archive", True),
    "/experiments/{experiment_id:int}/unarchive": _experiments.set_archived("unarchive", False),
    "/experiments/{experiment_id:int}/labels": _experiments.set_labels,
    "/experiments/{experiment_id:int}/notes": _experiments.set_notes,
    "/trials/{trial_id:int}/kill": _experiments.kill_trial,
    "/checkpoints/{uuid}/delete": _experiments.delete_checkpoint,
    "/models": _models.create_model,
    "/models/{model_id:int}/versions": _models.add_version,
    "/models/{model_id:int}/notes": _models.set_notes,
    "/models/{model_id:int}/archive": _models.set_archived("archive", True),
    "/models/{model_id:int}/unarchive": _models.set_archived("unarchive", False),
    "/users": _users.create_user,
    "/users/{user_id:int}/role": _users.set_role,
    "/users/{user_id:int}/password": _users.set_password,
    "/users/{user_id:int}/deactivate": _users.set_active("deactivate", False),
    "/users/{user_id:int}/activate": _users.set_active("activate", True),
    "/account/tokens": _account.create_token,
    "/account/tokens/{token_id:int}/delete": _account.delete_token,
    "/account/password": _account.change_password,
}

ROUTES: list[BaseRoute] = [
    Route("/login", _sessions.show_login),
    *(Route(path, endpoint, methods=["POST"]) for path, endpoint in _POSTS.items()),
]
