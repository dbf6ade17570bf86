"""Endpoints that submit experiments and start their runners.

The runner is imported when it is used, because that takes half a second.
"""

from __future__ import annotations

import threading
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from det_core.home import private_directory
from det_core.interfaces.records import ExperimentRecord, State
from det_core.tracking.remote import load_base64
from det_server._accounts import make_change, require_ownership, require_writer
from det_server._default_storage import add_default_storage
from det_server._json_response import JsonResponse
from det_server._refusal import RefusedError
from det_server._runner_start import start_runner
from det_server._site import principal_of, site_of
from det_server.api._json_body import JsonBody

_unpacking = threading.Semaphore(2)
"""Right to unpack code, which takes up to a gigabyte of memory."""


def submit(request: Request) -> Response:
    """Record an experiment with its code and start its runner."""
    from det_core.config import parse_config
    from det_core.launch.context_archive import unpack_context_dir
    from det_core.runner import submit_experiment
    from det_core.scratch import scratch_directory

    require_writer(request)
    site, body = site_of(request), JsonBody(request)
    with scratch_directory("submission", private_directory("server")) as directory:
        with _unpacking:
            unpack_context_dir(_decode(body.get("code", str)), directory)
        submit = partial(
            submit_experiment,
            site.store,
            parse_config(add_default_storage(body.get("config", dict), site.checkpoint_storage)),
            directory,
            original_config=body.get("original_config", str, "") or "",
            external_id=body.get("external_id", str, None),
            owner=principal_of(request).name,
        )
        experiment = make_change(request, "create", lambda created: f"experiment {created.id}", submit)
    if experiment.state is State.QUEUED and site.store.lease_holder(experiment.id) is None:
        site.keeper.start_runner(experiment.id)
    return JsonResponse({"id": experiment.id, "notices": []})


def start(request: Request) -> Response:
    """Start the runner of an experiment that stopped."""
    require_writer(request)
    experiment_id = request.path_params["experiment_id"]
    from_beginning = JsonBody(request).get("from_beginning", bool, False) or False
    start_runner(request, experiment_id, from_beginning=from_beginning)
    return JsonResponse({})


def continue_training(request: Request) -> Response:
    """Train an ended experiment further, or start a new one from one of its checkpoints."""
    from det_core import runner

    require_writer(request)
    site, body = site_of(request), JsonBody(request)
    experiment_id, checkpoint = request.path_params["experiment_id"], body.get("checkpoint", str, None)
    changes = body.get("changes", list, None) or []
    if not all(isinstance(change, str) for change in changes):
        raise RefusedError(400, "changes: expected a list of texts such as searcher.max_length=200")
    if checkpoint is None:
        require_ownership(request, "continuing it", experiment_id=experiment_id)
    train = (
        partial(runner.continue_experiment, site.store, experiment_id, changes, by_client=True)
        if checkpoint is None
        else partial(
            runner.fork_experiment,
            site.store,
            experiment_id,
            checkpoint,
            changes,
            by_client=True,
            owner=principal_of(request).name,
            external_id=body.get("external_id", str, None),
        )
    )

    def describe(trained: ExperimentRecord) -> str:
        return f"experiment {experiment_id}" + ("" if checkpoint is None else f" as experiment {trained.id}")

    experiment = make_change(request, "continue", describe, train)
    if site.store.lease_holder(experiment.id) is None:  # else an earlier request, whose answer was lost, started it
        start_runner(request, experiment.id)
    return JsonResponse({"id": experiment.id})


def _decode(text: str) -> bytes:
    try:
        return load_base64(text)
    except ValueError as error:
        raise RefusedError(400, f"code: expected a gzipped tar file in base64: {error}") from None
