"""Command plugin in one file, which shows the progress of experiments.

Install it with ``pip install ./examples/command_plugin`` and type ``det progress``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator

import det_core
from det_core.specs import CommandSpec


@det_core.hookimpl
def det_commands() -> Iterator[CommandSpec]:
    yield CommandSpec(name="progress", target="det_progress:configure", help="show the progress of experiments")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment_ids", type=int, nargs="*", metavar="EXPERIMENT_ID", help="by default all")
    once_or_often = parser.add_mutually_exclusive_group()
    once_or_often.add_argument("--json", action="store_true", help="print one JSON document")
    once_or_often.add_argument("--watch", type=float, metavar="SECONDS", help="repeat until Ctrl-C")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    show(args)
    while args.watch:
        time.sleep(args.watch)
        show(args)
    return 0


def show(args: argparse.Namespace) -> None:
    from det_core.experimental import client  # other commands need not wait for this import

    experiments = [client.get_experiment(number) for number in args.experiment_ids] or client.list_experiments()
    rows = [{"id": one.id, "state": one.state.value, "progress": one.progress} for one in experiments]
    if args.json:
        print(json.dumps(rows))
        return
    print("EXPERIMENT  STATE      PROGRESS")
    for row in rows:
        print(f"{row['id']:<10}  {row['state']:<9}  {row['progress']:.0%}")
