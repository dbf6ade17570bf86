"""Retention policy applied on request by ``det checkpoint gc EXPERIMENT_ID``."""

from __future__ import annotations

import argparse
import sys

from det_core.cli.render.printing import print_json
from det_core.cli.render.records import checkpoint_table
from det_core.config import CheckpointStorageConfig, parse_config
from det_core.core.checkpoint_removal import remove_checkpoint
from det_core.core.checkpoint_retention import find_superfluous
from det_core.core.client_events import ClientEvents
from det_core.errors import DetError
from det_core.home import default_storage
from det_core.interfaces.records import CheckpointRecord
from det_core.text import format_count, format_size
from det_core.tracking import open_store
from det_core.tracking._lease import Lease


def apply_retention(args: argparse.Namespace) -> int:
    """Remove the checkpoints that the retention policy does not keep. No runner can start during the removal.

    Raises:
        ExperimentBusy: a runner is running the experiment.
    """
    removed: list[CheckpointRecord] = []
    problems: list[str] = []
    with open_store() as store:
        experiment = store.experiment(args.experiment_id)
        configured = parse_config(experiment.config).checkpoint_storage
        policy = configured or CheckpointStorageConfig.model_validate(default_storage())
        with ClientEvents(store) as client, Lease(store, experiment.id) as lease:
            for checkpoint in find_superfluous(store, experiment.id, policy):
                lease.check()
                try:
                    if not args.dry_run:
                        remove_checkpoint(store, checkpoint, on_deleted=client.checkpoint_deleted)
                    removed.append(checkpoint)
                except DetError as error:
                    problems.append(f"checkpoint {checkpoint.uuid}: {error}")
    if args.json:
        print_json({"dry_run": args.dry_run, "checkpoints": removed, "problems": problems})
    else:
        if removed:
            print(checkpoint_table(removed))
        total = format_size(sum(sum(one.resources.values()) for one in removed))
        print(f"{'Would remove' if args.dry_run else 'Removed'} {format_count(len(removed), 'checkpoint')}, {total}.")
        for problem in problems:
            print(f"not removed: {problem}", file=sys.stderr)
    return 1 if problems else 0
