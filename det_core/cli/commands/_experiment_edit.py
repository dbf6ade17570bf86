"""``det experiment`` commands that change the name, description, notes, labels and archived flag."""

from __future__ import annotations

import argparse

from det_core.cli._command_table import EXPERIMENT_ID, JSON, Command, make_argument
from det_core.cli.render.printing import print_json
from det_core.cli.render.records import experiment_row
from det_core.interfaces.records import ExperimentRecord
from det_core.tracking import open_store


def _edit(args: argparse.Namespace, done: str, **change: object) -> int:
    with open_store() as store:
        experiment = store.edit_experiment(args.experiment_id, **change)  # type: ignore[arg-type]
    return _tell(args, experiment, done)


def _tell(args: argparse.Namespace, experiment: ExperimentRecord, done: str) -> int:
    if args.json:
        print_json(experiment_row(experiment))
    else:
        print(f"Experiment {experiment.id}: {done}")
    return 0


def _edit_labels(args: argparse.Namespace, change: str) -> int:
    with open_store() as store:
        experiment = store.edit_experiment(args.experiment_id, **{change: args.labels})
    return _tell(args, experiment, f"labels {', '.join(experiment.labels) or 'none'}")


def _list_labels(args: argparse.Namespace) -> int:
    with open_store() as store:
        labels = store.experiment(args.experiment_id).labels
    if args.json:
        print_json(labels)
    else:
        for label in labels:
            print(label)
    return 0


def _set_command(name: str) -> Command:
    return Command(
        name,
        lambda args: _edit(args, f"{name} {args.text!r}", **{name: args.text}),
        f"change the {name} of an experiment",
        (EXPERIMENT_ID, make_argument("text", metavar=name.upper(), help=f"the new {name}"), JSON),
        example=f"3 'new {name}'",
    )


_LABELS = make_argument("labels", nargs="+", metavar="LABEL", help="words of your choice")

EDIT_COMMANDS = (
    Command(
        "label",
        None,
        "add, remove or list the labels of an experiment",
        commands=(
            Command(
                "add",
                lambda args: _edit_labels(args, "add_labels"),
                "add labels",
                (EXPERIMENT_ID, _LABELS, JSON),
                example="3 baseline",
            ),
            Command(
                "remove",
                lambda args: _edit_labels(args, "remove_labels"),
                "remove labels",
                (EXPERIMENT_ID, _LABELS, JSON),
                example="3 baseline",
            ),
            Command(
                "list", _list_labels, "list the labels of an experiment", (EXPERIMENT_ID, JSON), ("ls",), example="3"
            ),
        ),
    ),
    Command(
        "set",
        None,
        "change the name, description, notes, project or workspace of an experiment",
        commands=[*map(_set_command, ("name", "description", "notes", "project", "workspace"))],
    ),
    Command(
        "archive",
        lambda args: _edit(args, "archived", archived=True),
        "hide an experiment in lists",
        (EXPERIMENT_ID, JSON),
        example="3",
    ),
    Command(
        "unarchive",
        lambda args: _edit(args, "not archived", archived=False),
        "show an experiment in lists again",
        (EXPERIMENT_ID, JSON),
        example="3",
    ),
)
