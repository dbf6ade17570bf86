"""The command ``det checkpoint export``."""

from __future__ import annotations

import argparse

from det_core.cli.commands._download import show_transfer
from det_core.cli.render.printing import print_json
from det_core.tracking import open_store


def run_export(args: argparse.Namespace) -> int:
    """Export a checkpoint, print the path, and return the exit code."""
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
