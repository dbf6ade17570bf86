"""The actions that pages offer, and the pages that ask before they are carried out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from det_core.interfaces.records import CheckpointState, ExperimentRecord, State
from det_core.tracking.control import lacks_runner
from det_server._accounts import require_writer
from det_server._refusal import RefusedError
from det_server._rendering import clean_text, query_string, render_page
from det_server.pages._store_values import experiment_of, parse_ids, require_uuid, store_of, trial_of

_ACTIVE = (State.ACTIVE, State.STOPPING_CANCELED, State.QUEUED)
_RESUMABLE = (State.PAUSED, State.CANCELED, State.ERROR)


@dataclass(frozen=True)
class Action:
    """Something that a page can do after a confirmation.

    Args:
        verb: text of the button.
        text: what will happen.
        command: the command line's equivalent, with ``{}`` for the id.
        destroys: whether something may be lost.
        choice: name and text of a check box.
    """

    verb: str
    text: str
    command: str
    destroys: bool = False
    choice: tuple[str, str] | None = None


EXPERIMENT_ACTIONS: Mapping[str, Action] = {
    "pause": Action(
        "Pause",
        "Running trials save a checkpoint and stop. Resume continues from there.",
        "det experiment pause {}",
    ),
    "resume": Action(
        "Resume",
        "The experiment continues from the latest checkpoints of its trials.",
        "det experiment resume {}",
        choice=("from_beginning", "Start the search over; trials that exist continue"),
    ),
    "cancel": Action(
        "Cancel",
        "Running trials save a checkpoint and stop. No more trials are started.",
        "det experiment cancel {}",
        destroys=True,
    ),
    "kill": Action(
        "Kill",
        "Running trials stop at once, without a checkpoint. The work since their latest checkpoints is lost.",
        "det experiment kill {}",
        destroys=True,
    ),
    "archive": Action(
        "Archive", "Archived experiments are not in the list. Nothing is deleted.", "det experiment archive {}"
    ),
    "unarchive": Action(
        "Unarchive", "Experiments that are not archived are in the list.", "det experiment unarchive {}"
    ),
}
BULK_ACTIONS: Mapping[str, Action] = {
    **{name: EXPERIMENT_ACTIONS[name] for name in ("pause", "cancel", "kill", "archive", "unarchive")},
    "move": Action(
        "Move", "The experiments belong to this project. Nothing else changes.", "det experiment set project {} NAME"
    ),
}
"""Actions on several experiments at once."""
MOST_SELECTED = 100
"""Maximum number of experiments of an action."""
KILL_TRIAL = Action(
    "Kill",
    "The trial stops at once, without a checkpoint. Its experiment continues.",
    "det trial kill {}",
    destroys=True,
)
DELETE_CHECKPOINT = Action(
    "Delete",
    "The files of the checkpoint are removed from its storage. This cannot be undone.",
    "det checkpoint rm {}",
    destroys=True,
)


def possible_actions(experiment: ExperimentRecord, orphaned: bool) -> list[tuple[str, Action]]:
    """Return the names and actions that make sense for an experiment in its present state.

    Args:
        experiment: the experiment.
        orphaned: whether it should have a runner, but has none.
    """
    runs = experiment.state in (*_ACTIVE, State.STOPPING_KILLED) and not orphaned and not experiment.unmanaged
    possible = {
        "pause": runs and experiment.state is State.ACTIVE,
        "resume": (orphaned or experiment.state in _RESUMABLE) and not experiment.unmanaged,
        "cancel": runs and experiment.state in (State.ACTIVE, State.QUEUED),
        "kill": runs,
        "archive": experiment.state.final and not experiment.archived,
        "unarchive": experiment.archived,
    }
    return [(name, action) for name, action in EXPERIMENT_ACTIONS.items() if possible[name]]


def confirm_experiment_action(request: Request) -> Response:
    """Ask before an action on an experiment."""
    experiment = experiment_of(request)
    name = request.path_params["action"]
    if name not in EXPERIMENT_ACTIONS:
        raise RefusedError(404, f"no action {clean_text(name)!r:.60}; expected {', '.join(EXPERIMENT_ACTIONS)}")
    subject = f"experiment {experiment.id}"
    title = f"{EXPERIMENT_ACTIONS[name].verb} {subject}, {clean_text(experiment.name)}?"
    return _ask(request, EXPERIMENT_ACTIONS[name], subject, title, f"/experiments/{experiment.id}", name, experiment.id)


def confirm_bulk_action(request: Request) -> Response:
    """Ask before an action on several experiments, and name those on which it makes no sense."""
    require_writer(request)
    name, query = request.query_params.get("action", ""), request.query_params
    if name not in BULK_ACTIONS:
        raise RefusedError(404, f"no action {clean_text(name)!r:.60}; expected {', '.join(BULK_ACTIONS)}")
    store, action = store_of(request), BULK_ACTIONS[name]
    wanted = parse_ids(",".join(query.getlist("experiments")), MOST_SELECTED)
    chosen = store.experiments_by_id(wanted, brief=True)
    runners = store.lease_holders([one.id for one in chosen])
    possible = [one for one in chosen if name == "move" or _is_possible(name, one, runners.get(one.id))]
    ids = [one.id for one in possible]
    return render_page(
        request,
        "bulk.html",
        action=action,
        name=name,
        chosen=possible,
        ids=",".join(map(str, ids)),
        left_out=[one for one in chosen if one.id not in ids],
        back=list_path(query.get("back", "")),
        command=_bulk_command(action, ids),
    )


def _bulk_command(action: Action, ids: Sequence[int]) -> str:
    """Return the command, in a loop of the shell if there are several experiments."""
    if len(ids) < 2:
        return action.command.format(ids[0] if ids else "EXPERIMENT_ID")
    return f"for id in {' '.join(map(str, ids))}; do {action.command.format('$id')}; done"


def list_path(query: str) -> str:
    """Return the path of the list of experiments with a query that it had before."""
    values = query_string(dict(parse_qsl(query.removeprefix("?"))))
    return f"/experiments{values.removesuffix('?')}"


def _is_possible(name: str, experiment: ExperimentRecord, runner: str | None) -> bool:
    return name in dict(possible_actions(experiment, lacks_runner(experiment, runner)))


def confirm_trial_kill(request: Request) -> Response:
    """Ask before a trial is killed."""
    trial = trial_of(request)
    subject = f"trial {trial.id}"
    return _ask(request, KILL_TRIAL, subject, f"Kill {subject}?", f"/trials/{trial.id}", "kill", trial.id)


def confirm_checkpoint_deletion(request: Request) -> Response:
    """Ask before a checkpoint is deleted."""
    uuid, trial_id = completed_checkpoint(request)
    return render_page(
        request,
        "confirm.html",
        **vars(DELETE_CHECKPOINT) | {"command": DELETE_CHECKPOINT.command.format(uuid)},
        title=f"Delete checkpoint {uuid}?",
        subject=f"trial {trial_id}",
        back=f"/trials/{trial_id}",
        action=f"/checkpoints/{uuid}/delete",
    )


def completed_checkpoint(request: Request) -> tuple[str, int]:
    """Return the uuid of the checkpoint that the URL names, and its trial.

    Raises:
        RecordNotFound: there is no such checkpoint.
        RefusedError: it is not complete, or the user may not change anything.
    """
    require_writer(request)
    checkpoint = store_of(request).checkpoint(require_uuid(request.path_params["uuid"]))
    if checkpoint.state is not CheckpointState.COMPLETED:
        raise RefusedError(409, f"checkpoint {checkpoint.uuid} is {checkpoint.state.value}; expected a COMPLETED one")
    return checkpoint.uuid, checkpoint.trial_id


def _ask(request: Request, action: Action, subject: str, title: str, page: str, name: str, identity: int) -> Response:
    require_writer(request)
    values = vars(action) | {"command": action.command.format(identity)}
    target = f"{page}/{name}"
    return render_page(request, "confirm.html", **values, title=title, subject=subject, back=page, action=target)


ROUTES = [
    Route("/experiments/confirm", confirm_bulk_action),
    Route("/experiments/{id:int}/confirm/{action}", confirm_experiment_action),
    Route("/trials/{id:int}/confirm/kill", confirm_trial_kill),
    Route("/checkpoints/{uuid}/confirm/delete", confirm_checkpoint_deletion),
]
