"""API with the calls of the tracking store and with what only a server can do."""

from __future__ import annotations

from starlette.routing import BaseRoute, Route

from det_server.api import _experiments, _info, _login, _store_calls

ROUTES: list[BaseRoute] = [
    Route("/api/info", _info.show_info),
    Route("/api/login", _login.log_in, methods=["POST"]),
    Route("/api/logout", _login.log_out, methods=["POST"]),
    Route("/api/run_tokens", _login.create_run_token, methods=["POST"]),
    Route("/api/store/{method}", _store_calls.call_store, methods=["POST"]),
    Route("/api/experiments", _experiments.submit, methods=["POST"]),
    Route("/api/experiments/{experiment_id:int}/start", _experiments.start, methods=["POST"]),
    Route("/api/experiments/{experiment_id:int}/continue", _experiments.continue_training, methods=["POST"]),
]
