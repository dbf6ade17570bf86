"""Actions on experiments, trials and checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from det_core.errors import DetError
from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking.control import request_experiment_stop, request_trial_kill
from det_server._accounts import make_change, record_action, require_ownership, require_writer
from det_server._forms import read_form
from det_server._rendering import render_error
from det_server._runner_start import start_runner
from det_server._site import site_of
from det_server.actions._record_changes import Change, Endpoint
from det_server.pages._actions import BULK_ACTIONS, MOST_SELECTED, list_path
from det_server.pages._store_values import parse_ids, require_uuid

_LONGEST_GROUP = 200
"""Maximum number of characters of the name of a project or workspace."""


def resume(request: Request) -> Response:
    """Start the runner of an experiment that stopped."""
    require_writer(request)
    experiment_id = request.path_params["id"]
    start_runner(request, experiment_id, from_beginning=read_form(request).get("from_beginning") == "1")
    return RedirectResponse(f"/experiments/{experiment_id}", 303)


def delete_checkpoint(request: Request) -> Response:
    """Delete the files of a checkpoint."""
    from det_core.runner import check_deletable, delete_checkpoints  # takes half a second

    require_writer(request)
    store = site_of(request).store
    checkpoint = store.checkpoint(require_uuid(request.path_params["uuid"], 400))
    check_deletable(store, checkpoint)
    require_ownership(request, "deleting it", uuid=checkpoint.uuid)
    record_action(request, "delete", f"checkpoint {checkpoint.uuid}")
    delete_checkpoints(store, [checkpoint], by_server=True)
    return RedirectResponse(f"/trials/{checkpoint.trial_id}", 303)


def change_many(name: str) -> Endpoint:
    """Return an endpoint that does to several experiments what the action does to one.

    Each experiment is changed by itself, with its own entry in the audit log. Those that cannot be changed are named.
    """

    def act(request: Request) -> Response:
        require_writer(request)
        store, failures = site_of(request).store, list[str]()
        ids = parse_ids(read_form(request).get("experiments"), MOST_SELECTED)
        for one in ids:
            change = partial(_BULK_CHANGES[name], request, store, one)
            try:
                make_change(request, name, f"experiment {one}", change)
            except DetError as error:
                failures.append(str(error))
        if failures:
            message = f"{len(ids) - len(failures)} of {len(ids)} experiments were changed; {'; '.join(failures)}"
            return render_error(request, 409, message, "Open the others to see their present state.")
        return RedirectResponse(list_path(read_form(request).get("back")), 303)

    return act


def _move(request: Request, store: TrackingStore, experiment_id: int) -> None:
    form = read_form(request)
    names = {name: form.get(name)[:_LONGEST_GROUP] for name in ("project", "workspace")}
    store.edit_experiment(experiment_id, **names)  # type: ignore[arg-type]


def _read_labels(text: str) -> list[str]:
    """Return the labels in a text that commas separate."""
    return list(dict.fromkeys(filter(None, (part.strip() for part in text.split(",")))))


def _set_labels(request: Request, store: TrackingStore, experiment_id: int) -> None:
    labels = _read_labels(read_form(request).get("labels"))
    present = store.experiment(experiment_id).labels
    store.edit_experiment(
        experiment_id,
        add_labels=[label for label in labels if label not in present],
        remove_labels=[label for label in present if label not in labels],
    )


CHANGES: Mapping[str, Change] = {
    "pause": lambda _, store, one: request_experiment_stop(store, one, State.PAUSED),
    "cancel": lambda _, store, one: request_experiment_stop(store, one, State.STOPPING_CANCELED),
    "kill": lambda _, store, one: request_experiment_stop(store, one, State.STOPPING_KILLED),
    "archive": lambda _, store, one: store.edit_experiment(one, archived=True),
    "unarchive": lambda _, store, one: store.edit_experiment(one, archived=False),
    "labels": _set_labels,
    "notes": lambda request, store, one: store.edit_experiment(one, notes=read_form(request).get("notes")),
}
"""Names of the actions on experiments, except resuming, mapped to what they do."""
_BULK_CHANGES: Mapping[str, Change] = {**CHANGES, "move": _move}
BULK_POSTS = {f"/experiments/{name}": change_many(name) for name in BULK_ACTIONS}
"""Endpoints of the actions on several experiments, by path."""
TRIAL_CHANGES: Mapping[str, Change] = {"kill": lambda _, store, one: request_trial_kill(store, one)}
"""Names of the actions on trials, mapped to what they do."""
