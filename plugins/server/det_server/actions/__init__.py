"""Actions of the forms on pages. Each answers with a redirect to a page, and is recorded in the audit log."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.routing import BaseRoute, Route

from det_server._threads import Work, in_login_threads, in_threads
from det_server.actions import _account, _experiments, _models, _sessions, _users
from det_server.actions._record_changes import Endpoint, make_endpoints

_POSTS: Mapping[str, Endpoint] = {
    "/logout": _sessions.log_out,
    **make_endpoints("experiment", _experiments.CHANGES),
    **_experiments.BULK_POSTS,
    **make_endpoints("trial", _experiments.TRIAL_CHANGES),
    **make_endpoints("model", _models.CHANGES),
    "/experiments/{id:int}/resume": _experiments.resume,
    "/checkpoints/{uuid}/delete": _experiments.delete_checkpoint,
    "/models": _models.create_model,
    "/models/{id:int}/versions": _models.add_version,
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
    Route("/login", in_login_threads(_sessions.known_user, _sessions.log_in), methods=["POST"]),
    *(Route(path, in_threads(Work.CHANGES, endpoint), methods=["POST"]) for path, endpoint in _POSTS.items()),
]
