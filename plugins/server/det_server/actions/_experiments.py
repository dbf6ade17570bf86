"""Actions on experiments, trials and checkpoints."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from det_core.interfaces.records import State
from det_core.tracking.control import request_experiment_stop, request_trial_kill
from det_server._accounts import record_action, require_writer
from det_server._forms import read_form
from det_server._runner_start import start_runner
from det_server._site import site_of
from det_server.actions._models import require_uuid

_LONGEST_LABEL = 100
_MOST_LABELS = 50


def request_stop(action: str, state: State) -> Callable[[Request], Response]:
    """Return an endpoint that asks the runner of an experiment to stop.

    Args:
        action: name of the action in the audit log.
        state: state to request.
    """

    def stop(request: Request) -> Response:
        require_writer(request)
        experiment_id = request.path_params["experiment_id"]
        request_experiment_stop(site_of(request).store, experiment_id, state)
        return _done(request, action, experiment_id)

    return stop


def set_archived(action: str, archived: bool) -> Callable[[Request], Response]:
    """Return an endpoint that puts an experiment aside or takes it back.

    Args:
        action: name of the action in the audit log.
        archived: whether the experiment is put aside.
    """

    def archive(request: Request) -> Response:
        require_writer(request)
        experiment_id = request.path_params["experiment_id"]
        site_of(request).store.edit_experiment(experiment_id, archived=archived)
        return _done(request, action, experiment_id)

    return archive


def resume(request: Request) -> Response:
    """Start the runner of an experiment that stopped."""
    require_writer(request)
    experiment_id = request.path_params["experiment_id"]
    start_runner(request, experiment_id, from_beginning=read_form(request).get("from_beginning") == "1")
    return RedirectResponse(f"/experiments/{experiment_id}", 303)


def set_labels(request: Request) -> Response:
    """Replace the labels of an experiment."""
    require_writer(request)
    experiment_id, store = request.path_params["experiment_id"], site_of(request).store
    labels = read_labels(read_form(request).get("labels"))
    present = store.experiment(experiment_id).labels
    store.edit_experiment(
        experiment_id,
        add_labels=[label for label in labels if label not in present],
        remove_labels=[label for label in present if label not in labels],
    )
    return _done(request, "labels", experiment_id)


def set_notes(request: Request) -> Response:
    """Replace the notes on an experiment."""
    require_writer(request)
    experiment_id = request.path_params["experiment_id"]
    site_of(request).store.edit_experiment(experiment_id, notes=read_form(request).get("notes"))
    return _done(request, "notes", experiment_id)


def kill_trial(request: Request) -> Response:
    """Ask the runner of a trial to end it at once."""
    require_writer(request)
    trial_id = request.path_params["trial_id"]
    request_trial_kill(site_of(request).store, trial_id)
    record_action(request, "kill", f"trial {trial_id}")
    return RedirectResponse(f"/trials/{trial_id}", 303)


def delete_checkpoint(request: Request) -> Response:
    """Delete the files of a checkpoint."""
    from det_core.runner import check_deletable, delete_checkpoints  # takes half a second

    require_writer(request)
    store = site_of(request).store
    checkpoint = store.checkpoint(require_uuid(request.path_params["uuid"]))
    check_deletable(store, checkpoint)
    record_action(request, "delete", f"checkpoint {checkpoint.uuid}")
    delete_checkpoints(store, [checkpoint])
    return RedirectResponse(f"/trials/{checkpoint.trial_id}", 303)


def read_labels(text: str) -> list[str]:
    """Return the labels in a text that commas separate.

    Raises:
        ValueError: there are too many, or one is too long.
    """
    labels = list(dict.fromkeys(filter(None, (part.strip() for part in text.split(",")))))
    if len(labels) > _MOST_LABELS or any(len(label) > _LONGEST_LABEL for label in labels):
        raise ValueError(f"expected at most {_MOST_LABELS} labels of at most {_LONGEST_LABEL} characters")
    return labels


def _done(request: Request, action: str, experiment_id: int) -> Response:
    record_action(request, action, f"experiment {experiment_id}")
    return RedirectResponse(f"/experiments/{experiment_id}", 303)
