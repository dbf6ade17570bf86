"""API with the calls of the tracking store and with what only a server can do."""

from __future__ import annotations

from starlette.routing import BaseRoute, Route

from det_server._threads import Work, in_login_threads, in_threads
from det_server.api import _checkpoint_files, _deletions, _experiments, _info, _login, _metrics, _store_calls
from det_server.api._deletions import Deletions

__all__ = ["ROUTES", "Deletions"]

ROUTES: list[BaseRoute] = [
    Route("/api/info", in_threads(Work.PAGES, _info.show_info)),
    Route("/metrics", in_threads(Work.PAGES, _metrics.show_metrics)),
    Route("/api/login", in_login_threads(_login.known_user, _login.log_in), methods=["POST"]),
    Route("/api/logout", in_threads(Work.CHANGES, _login.log_out), methods=["POST"]),
    Route("/api/run_tokens", in_threads(Work.CHANGES, _login.create_run_token), methods=["POST"]),
    Route("/api/store/{method}", _store_calls.call_store, methods=["POST"]),
    Route("/api/checkpoints/{uuid}/files", in_threads(Work.DOWNLOADS, _checkpoint_files.list_files)),
    Route("/api/checkpoints/{uuid}/files/{number:int}", in_threads(Work.DOWNLOADS, _checkpoint_files.send_file)),
    Route("/api/checkpoints/{uuid}/delete", _deletions.delete_checkpoint, methods=["POST"]),
    Route(
        "/api/experiments/{experiment_id:int}/tensorboard/delete", _deletions.delete_tensorboard_files, methods=["POST"]
    ),
    Route("/api/experiments", in_threads(Work.SUBMISSIONS, _experiments.submit), methods=["POST"]),
    *(
        Route(f"/api/experiments/{{experiment_id:int}}/{name}", in_threads(Work.CHANGES, endpoint), methods=["POST"])
        for name, endpoint in {"start": _experiments.start, "continue": _experiments.continue_training}.items()
    ),
]
