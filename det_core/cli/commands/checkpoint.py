"""The ``det checkpoint`` commands."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from det_core.cli._command_table import FILTERS, JSON, YES, Command, UsageError, add_commands, make_argument
from det_core.cli.commands._checkpoint_orphans import Orphan, find_orphans
from det_core.cli.commands._download import download_to, show_transfer
from det_core.cli.commands._listings import CHECKPOINT_LIST_ARGUMENTS, list_checkpoints
from det_core.cli.render.checkpoint_place import locate_checkpoint
from det_core.cli.render.printing import print_json
from det_core.cli.render.records import checkpoint_facts
from det_core.errors import DetError
from det_core.text import format_count, format_size, format_table, record_to_json
from det_core.tracking import open_store


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the commands to the parser."""
    add_commands(parser, _COMMANDS)


def _list(args: argparse.Namespace) -> int:
    return list_checkpoints(args, args.trial)


def _describe(args: argparse.Namespace) -> int:
    with open_store() as store:
        checkpoint = store.checkpoint(args.uuid)
        place = locate_checkpoint(store, checkpoint)
    if args.json:
        print_json(record_to_json(checkpoint, path=place.path, machine=place.machine))
    else:
        print(checkpoint_facts(checkpoint, str(place)))
    return 0


def _download(args: argparse.Namespace) -> int:
    with open_store() as store:
        return download_to(store, store.checkpoint(args.uuid), args.output, as_json=args.json)


def _gc(args: argparse.Namespace) -> int:
    if args.orphans is (args.experiment_id is not None):
        raise UsageError("expected either EXPERIMENT_ID or --orphans")
    return _gc_orphans(args) if args.orphans else _gc_experiment(args)


def _gc_experiment(args: argparse.Namespace) -> int:
    from det_core.cli.commands._checkpoint_removal import apply_retention

    return apply_retention(args)


def _gc_orphans(args: argparse.Namespace) -> int:
    removed, failed = [], []
    with open_store() as store:
        orphans = find_orphans(store, args.older_than)
        for orphan in orphans.found:
            try:
                if args.dry_run or orphan.remove():
                    removed.append(orphan)
            except DetError as error:
                failed.append(f"checkpoint {orphan.uuid}: {error}")
    _show_orphans(args, removed, [*orphans.problems, *failed])
    return 1 if orphans.problems or failed else 0


def _show_orphans(args: argparse.Namespace, removed: Sequence[Orphan], problems: Sequence[str]) -> None:
    rows = [(one.uuid, one.reason, len(one.files), sum(one.files.values())) for one in removed]
    if args.json:
        keys = ("uuid", "reason", "files", "size")
        listed = [dict(zip(keys, row, strict=True)) for row in rows]
        print_json({"dry_run": args.dry_run, "orphans": listed, "problems": problems})
        return
    if rows:
        print(format_table(("uuid", "reason", "files", "size"), ((*row, format_size(number)) for *row, number in rows)))
    verb = "Would remove" if args.dry_run else "Removed"
    total = f", {format_size(sum(row[-1] for row in rows))}" if rows else ""
    print(f"{verb} {format_count(len(rows), 'orphan')}{total}.")
    for problem in problems:
        print(f"not searched or removed: {problem}", file=sys.stderr)


def _age(text: str) -> timedelta:
    units = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
    number, unit = text[:-1], text[-1:]
    if not number.isdecimal() or unit not in units:
        raise argparse.ArgumentTypeError(f"expected an age such as 90s, 30m, 24h or 7d, got {text!r}")
    return timedelta(**{units[unit]: int(number)})


def _rm(args: argparse.Namespace) -> int:
    from det_core.cli.commands._checkpoint_removal import run_rm

    return run_rm(args)


def _export(args: argparse.Namespace) -> int:
    from det_core.experimental._exports import default_export_path, export_checkpoint

    target = args.output or default_export_path(args.uuid)
    with open_store() as store:
        checkpoint = store.checkpoint(args.uuid)
        total = sum(number for name, number in checkpoint.resources.items() if name != "metadata.json")
        with show_transfer(total) as progress:
            export_checkpoint(store, checkpoint, args.format, target, progress)
        names = sorted(path.name for path in target.iterdir())
    if args.json:
        print_json({"uuid": checkpoint.uuid, "format": args.format, "path": target.absolute(), "models": names})
    else:
        print(f"The weights of checkpoint {checkpoint.uuid} are in {target}: {', '.join(names)}")
    return 0


_UUID_HELP = "id of a checkpoint, see det checkpoint list"
_UUID = make_argument("uuid", metavar="UUID", help=_UUID_HELP)
_COMMANDS = (
    Command(
        "list",
        _list,
        "list checkpoints, oldest first",
        (
            make_argument(
                "experiment_id",
                type=int,
                nargs="?",
                metavar="EXPERIMENT_ID",
                help="only checkpoints of this experiment",
            ),
            make_argument(
                "--trial", type=int, metavar="TRIAL_ID", help="only checkpoints of this trial", group=FILTERS
            ),
            *CHECKPOINT_LIST_ARGUMENTS,
        ),
        ("ls",),
        example="3 --best",
    ),
    Command("describe", _describe, "show a checkpoint with its files", (_UUID, JSON), example="UUID"),
    Command(
        "gc",
        _gc,
        "remove checkpoints that are no longer needed",
        (
            make_argument(
                "experiment_id",
                type=int,
                nargs="?",
                metavar="EXPERIMENT_ID",
                help="remove the checkpoints of this experiment that its checkpoint_storage.save_* settings do not "
                "keep; completed experiments do so automatically, failed and canceled ones keep all until this command",
            ),
            make_argument(
                "--orphans",
                action="store_true",
                help="remove unfinished checkpoints of killed runs",
            ),
            make_argument(
                "--older-than",
                type=_age,
                default="24h",
                metavar="AGE",
                help="with --orphans: keep files that changed within this time, unless they are known to be abandoned "
                "(default 24h)",
            ),
            make_argument("--dry-run", action="store_true", help="only show what would be removed"),
            JSON,
        ),
        example="3 --dry-run\n--orphans --older-than 7d",
    ),
    Command(
        "rm",
        _rm,
        "remove checkpoints from their storage, or some of their files",
        (
            make_argument("uuids", nargs="+", metavar="UUID", help=_UUID_HELP),
            make_argument(
                "--glob",
                action="append",
                default=[],
                metavar="PATTERN",
                help="only files that match, as in .gitignore: '*.pth', 'optimizer/'; may be repeated",
            ),
            YES,
            JSON,
        ),
        example="UUID --glob 'optimizer/'",
    ),
    Command(
        "download",
        _download,
        "copy a checkpoint into a directory and verify it",
        (
            _UUID,
            make_argument(
                "-o", "--output", "--output-dir", type=Path, metavar="DIR", help="target; default: checkpoints/UUID"
            ),
            JSON,
        ),
        example="UUID -o best",
    ),
    Command(
        "export",
        _export,
        "write the weights of a checkpoint in a format of other libraries",
        (
            _UUID,
            make_argument(
                "--format",
                required=True,
                metavar="FORMAT",
                help="of PyTorch: safetensors, state_dict (for torch.load) or dcp (for torch.distributed.checkpoint)",
            ),
            make_argument("-o", "--output", type=Path, metavar="DIR", help="target; default: exports/UUID"),
            JSON,
        ),
        example="UUID --format safetensors -o houses",
    ),
)
