"""``det checkpoint``: list, describe and download checkpoints."""

from __future__ import annotations

import argparse
from pathlib import Path

from det_core.cli._command import JSON, Command, add_commands, argument
from det_core.cli._outcome import location
from det_core.cli._output import print_json
from det_core.cli._records import all_checkpoints, checkpoint_facts, checkpoint_table, document
from det_core.cli._storage import download
from det_core.tracking import open_store


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the commands."""
    add_commands(parser, _COMMANDS)


def _list(args: argparse.Namespace) -> int:
    with open_store() as store:
        if args.experiment_id is not None:
            store.experiment(args.experiment_id)  # an id that does not exist is an error, not an empty list
        checkpoints = all_checkpoints(store, experiment_id=args.experiment_id)
    if args.json:
        print_json(checkpoints)
    else:
        print(checkpoint_table(checkpoints) if checkpoints else "No checkpoints.")
    return 0


def _describe(args: argparse.Namespace) -> int:
    with open_store() as store:
        checkpoint = store.checkpoint(args.uuid)
    path = location(checkpoint)
    if args.json:
        print_json(document(checkpoint, path=path))
    else:
        print(checkpoint_facts(checkpoint, path))
    return 0


def _download(args: argparse.Namespace) -> int:
    target: Path = args.output or Path("checkpoints", args.uuid)
    with open_store() as store:
        checkpoint = store.checkpoint(args.uuid)
    download(checkpoint, target)
    if args.json:
        print_json({"uuid": checkpoint.uuid, "path": target.absolute()})
    else:
        print(f"Checkpoint {checkpoint.uuid} is in {target}")
    return 0


_UUID = argument("uuid", metavar="UUID")
_COMMANDS = (
    Command(
        "list",
        _list,
        "list checkpoints, oldest first",
        (argument("experiment_id", type=int, nargs="?", metavar="EXPERIMENT_ID", help="only of this experiment"), JSON),
        ("ls",),
    ),
    Command("describe", _describe, "show a checkpoint with its files", (_UUID, JSON)),
    Command(
        "download",
        _download,
        "copy a checkpoint into a directory and verify it",
        (
            _UUID,
            argument("-o", "--output", "--output-dir", type=Path, metavar="DIR", help="default: checkpoints/UUID"),
            JSON,
        ),
    ),
)
