"""Endpoints that submit experiments and start their runners."""

from __future__ import annotations

import base64
import binascii
import threading

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from det_core import runner
from det_core.config import parse_config
from det_core.errors import ExperimentBusy
from det_core.home import private_directory
from det_core.launch.context_archive import unpack_context_dir
from det_core.scratch import scratch_directory
from det_server._accounts import record_action, require_writer
from det_server._refusal import RefusedError
from det_server._site import principal_of, site_of
from det_server.api._json_body import JsonBody

_one_at_a_time = threading.Lock()
"""Held while a submission is unpacked, which takes up to a gigabyte of memory."""


def submit(request: Request) -> Response:
    """Record an experiment with its code and start its runner."""
    require_writer(request)
    site, body = site_of(request), JsonBody(request)
    with _one_at_a_time, scratch_directory("submission", private_directory("server")) as directory:
        unpack_context_dir(_decode(body.get("code", str)), directory)
        experiment = runner.submit_experiment(
            site.store,
            parse_config(body.get("config", dict)),
            directory,
            original_config=body.get("original_config", str, "") or "",
            external_id=body.get("external_id", str, None),
            owner=principal_of(request).name,
        )
    record_action(request, "create", f"experiment {experiment.id}")
    if not experiment.state.final and site.store.lease_holder(experiment.id) is None:
        site.keeper.start_runner(experiment.id)
    return JSONResponse({"id": experiment.id, "notices": []})


def start(request: Request) -> Response:
    """Start the runner of an experiment that stopped."""
    require_writer(request)
    experiment_id = request.path_params["experiment_id"]
    from_beginning = JsonBody(request).get("from_beginning", bool, False) or False
    start_runner(request, experiment_id, from_beginning=from_beginning)
    return JSONResponse({})


def continue_training(request: Request) -> Response:
    """Train an ended experiment further, or start a new one from one of its checkpoints."""
    require_writer(request)
    site, body = site_of(request), JsonBody(request)
    experiment_id, checkpoint = request.path_params["experiment_id"], body.get("checkpoint", str, None)
    changes = body.get("changes", list, None) or []
    if not all(isinstance(change, str) for change in changes):
        raise RefusedError(400, "changes: expected a list of texts such as searcher.max_length=200")
    if checkpoint is None:
        experiment = runner.continue_experiment(site.store, experiment_id, changes)
    else:
        experiment = runner.fork_experiment(site.store, experiment_id, checkpoint, changes)
    start_runner(request, experiment.id)
    return JSONResponse({"id": experiment.id})


def start_runner(request: Request, experiment_id: int, *, from_beginning: bool = False) -> None:
    """Start the runner of an experiment, and record that the caller did so.

    Raises:
        ExperimentBusy: it has a runner.
        DetError: it cannot be run.
    """
    site = site_of(request)
    site.store.experiment(experiment_id)
    if holder := site.store.lease_holder(experiment_id):
        raise ExperimentBusy(f"experiment {experiment_id} is being run by {holder}; to stop it first, pause it")
    site.keeper.start_runner(experiment_id, from_beginning=from_beginning)
    record_action(request, "resume", f"experiment {experiment_id}")


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RefusedError(400, f"code: expected a gzipped tar file in base64: {error}") from None
