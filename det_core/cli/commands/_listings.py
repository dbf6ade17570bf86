"""Listings of trials and checkpoints that several commands share."""

from __future__ import annotations

import argparse

from det_core.cli._command_table import CSV, JSON, LIMIT, OUTPUT, REVERSE, WHERE, OpenChoices, UsageError, make_argument
from det_core.cli.commands._states import state_option
from det_core.cli.render.printing import print_listing
from det_core.cli.render.records import checkpoint_table, result_row, scored_row, scored_table, trial_table
from det_core.interfaces.records import SHOWN_CHECKPOINT_STATES, TRIAL_ORDERS, State, searcher_metric, sort_options
from det_core.tracking import open_store

TRIAL_LIST_ARGUMENTS = (
    make_argument(
        "--sort-by",
        choices=OpenChoices(TRIAL_ORDERS),
        default="id",
        metavar="{" + ",".join(TRIAL_ORDERS) + ",NAME}",
        help="sort by the best or latest value of the searcher's metric, best first, by batches trained, or by a "
        "hyperparameter or metric, least first; default: by id",
        group=OUTPUT,
    ),
    state_option(State),
    WHERE,
    REVERSE,
    LIMIT,
    CSV,
    JSON,
)
CHECKPOINT_LIST_ARGUMENTS = (
    make_argument(
        "--best",
        action="store_true",
        help="sort by the searcher's metric at the batch of the checkpoint, best first, and show its value",
        group=OUTPUT,
    ),
    LIMIT,
    CSV,
    JSON,
)


def list_trials(args: argparse.Namespace) -> int:
    """Print the trials of an experiment with the batches that they trained and their best and latest metrics."""
    with open_store() as store:
        config = store.experiment(args.experiment_id).config
        results = store.trial_results(
            args.experiment_id,
            states=[State(state) for state in args.states],
            where=args.where,
            **sort_options(args.sort_by, TRIAL_ORDERS),
            reverse=args.reverse,
            limit=args.limit,
        )
        metric, _ = searcher_metric(config)
        diverged = store.divergences([result.trial.id for result in results], metric, group="validation")
    print_listing(
        args,
        (result_row(result, config) for result in results),
        lambda: trial_table(results, config, diverged) if results else "No trials.",
    )
    return 0


def list_checkpoints(args: argparse.Namespace, trial_id: int | None = None) -> int:
    """Print checkpoints, the oldest first. With ``--best``, the one with the best metric is first.

    Args:
        args: arguments of the command. An ``experiment_id`` limits the list to one experiment.
        trial_id: include only the checkpoints of this trial.

    Raises:
        UsageError: ``--best`` was given without an experiment or a trial, so that the metric is unknown.
    """
    with open_store() as store:
        experiment_id = args.experiment_id
        if trial_id is not None:
            experiment_id = store.trial(trial_id).experiment_id
        if args.best:
            if experiment_id is None:
                raise UsageError("--best needs the metric of one experiment; add EXPERIMENT_ID or --trial TRIAL_ID")
            metric, _ = searcher_metric(store.experiment(experiment_id).config)
            scored = store.scored_checkpoints(
                experiment_id, trial_id=trial_id, states=SHOWN_CHECKPOINT_STATES, limit=args.limit
            )
            print_listing(
                args, map(scored_row, scored), lambda: scored_table(scored, metric) if scored else _NO_CHECKPOINTS
            )
            return 0
        found = store.checkpoints(experiment_id=experiment_id, trial_id=trial_id, states=SHOWN_CHECKPOINT_STATES)
    listed = found if args.limit is None else found[-args.limit :] if args.limit else []
    print_listing(args, listed, lambda: checkpoint_table(listed) if listed else _NO_CHECKPOINTS)
    return 0


_NO_CHECKPOINTS = "No checkpoints."
