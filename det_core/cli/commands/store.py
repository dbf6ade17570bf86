"""Command ``det store``, which checks, backs up, restores and upgrades the tracking store."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from det_core.cli._command_table import JSON, Command, add_commands, make_argument
from det_core.cli.commands._own_database import choose_database
from det_core.cli.render.printing import print_json
from det_core.interfaces.records import CheckpointState
from det_core.text import format_count, format_facts

if TYPE_CHECKING:
    from det_core.interfaces.tracking import TrackingStore


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the commands to the parser."""
    add_commands(parser, _COMMANDS)


def _check(args: argparse.Namespace) -> int:
    from det_core.tracking import maintenance, open_store
    from det_core.tracking._schema import VERSION

    report = maintenance.check_database(_url(args))
    problems, elsewhere = list(report.problems), 0
    if not problems and report.version == VERSION:
        with open_store(_url(args)) as store:
            lost, elsewhere = _find_lost(store)
        problems += lost
    if args.json:
        print_json({**vars(report), "ok": not problems, "problems": problems, "not_checked": elsewhere})
    else:
        facts = {"store": report.url, "tables": f"version {report.version}", **report.rows}
        print(format_facts({**facts, "result": "damaged" if problems else "ok"}))
        if elsewhere:
            print(f"{format_count(elsewhere, 'checkpoint')} in object stores: files not checked")
        if 0 < report.version < VERSION:
            print(f"The tables are of an older release. To upgrade them to version {VERSION}: det store upgrade")
        print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


def _find_lost(store: TrackingStore) -> tuple[list[str], int]:
    """Return a line for each checkpoint that is not in its directory, and the number of those in other stores."""
    from det_core.cli.render.checkpoint_place import locate_checkpoint
    from det_core.storage import METADATA_FILE

    complete = store.checkpoints(states=[CheckpointState.COMPLETED])
    places = {one.uuid: Path(locate_checkpoint(store, one).path) for one in complete}
    here = {uuid: place for uuid, place in places.items() if place.is_absolute()}
    gone = {uuid for uuid, place in here.items() if not (place / METADATA_FILE).exists()}
    lost = [
        f"checkpoint {one.uuid} of trial {one.trial_id} is not in {here[one.uuid]}; is the disk mounted?"
        for one in (store.checkpoints(states=[CheckpointState.COMPLETED]) if gone else ())  # others were removed since
        if one.uuid in gone
    ]
    return lost, len(places) - len(here)


def _backup(args: argparse.Namespace) -> int:
    from det_core.tracking import maintenance

    maintenance.back_up(_url(args), args.file)
    size = args.file.stat().st_size
    return _tell(args, f"Wrote {args.file} ({size} bytes), without secrets and checkpoints", path=args.file.absolute())


def _restore(args: argparse.Namespace) -> int:
    from det_core.tracking import maintenance

    maintenance.restore_backup(_url(args), args.file, overwrite=args.yes)
    return _tell(args, f"Restored the tracking store from {args.file}", path=args.file.absolute())


def _upgrade(args: argparse.Namespace) -> int:
    from det_core.tracking import maintenance

    before, after = maintenance.upgrade_store(_url(args))
    done = (
        f"Upgraded the tables from version {before} to {after}" if before != after else f"Up to date: version {after}"
    )
    return _tell(args, done, before=before, after=after)


def _tell(args: argparse.Namespace, done: str, **facts: object) -> int:
    if args.json:
        print_json(facts)
    else:
        print(done)
    return 0


def _url(args: argparse.Namespace) -> str:
    return choose_database(args.url, command="det store", option="--url")


_URL = make_argument(
    "--url",
    metavar="URL",
    help="sqlite:////absolute/path/det.db or postgresql://user@host/database; default: det.db in DET_HOME",
)
_COMMANDS = (
    Command(
        "check",
        _check,
        "check the integrity of the tracking store, and that checkpoints in directories exist; exit code 1 if damaged",
        (_URL, JSON),
        example="\n--url postgresql://det@db/det",
    ),
    Command(
        "backup",
        _backup,
        "write a consistent copy of the tracking store, while experiments go on",
        (make_argument("file", type=Path, metavar="FILE", help="a new file"), _URL, JSON),
        example="monday.db",
    ),
    Command(
        "restore",
        _restore,
        "replace the contents of the tracking store by a backup, completely or not at all",
        (
            make_argument("file", type=Path, metavar="FILE", help="a file that det store backup wrote"),
            make_argument("-y", "--yes", action="store_true", help="replace a store that is not empty"),
            _URL,
            JSON,
        ),
        example="monday.db --yes",
    ),
    Command(
        "upgrade",
        _upgrade,
        "upgrade the tables of an older release now; other commands do it when they open the store",
        (_URL, JSON),
        example="",
    ),
)
