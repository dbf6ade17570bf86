"""Command ``det compare``, which writes a report about trials as one HTML file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to the parser."""
    parser.epilog = (
        "examples:\n"
        "  det compare 3 17 40 -o report.html\n"
        "  det compare --experiments 2 5 --best 3 --step 1000  # the three best of each"
    )
    parser.add_argument("trials", nargs="*", type=_parse_id, metavar="TRIAL_ID", help="trials to compare")
    parser.add_argument(
        "--experiments",
        nargs="+",
        type=_parse_id,
        default=[],
        metavar="ID",
        help="experiments whose best trials to add",
    )
    parser.add_argument(
        "--best", type=_parse_id, default=1, metavar="N", help="number of trials of each experiment (default: 1)"
    )
    parser.add_argument(
        "--step", type=_parse_step, metavar="BATCH", help="number of batches at which to show values, too"
    )
    parser.add_argument(
        "--metric",
        default="",
        metavar="KEY",
        help="metric of the curves, such as validation.loss; default: the searcher's",
    )
    parser.add_argument(
        "--metrics",
        default="",
        metavar="TEXT",
        help="part of the names of metrics in the table; default: any",
    )
    parser.add_argument("--differences", action="store_true", help="only rows that differ")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("comparison.html"), metavar="FILE", help="default: comparison.html"
    )
    parser.set_defaults(run=_run)


def _parse_id(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18 and int(text) > 0):
        raise argparse.ArgumentTypeError(f"expected a positive number, got {text!r}")
    return int(text)


def _parse_step(text: str) -> int:
    return 0 if text == "0" else _parse_id(text)


def _run(args: argparse.Namespace) -> int:
    from det_core.errors import DetError
    from det_core.text import format_count
    from det_core.tracking import open_store
    from det_server.pages._comparison import Choice, read_comparison
    from det_server.pages._comparison_report import make_report
    from det_server.pages.code import code_differences

    choice = Choice(
        trials=args.trials,
        experiments=args.experiments,
        best=args.best,
        step=args.step,
        series=args.metric,
        names=args.metrics,
    )
    with open_store() as store:
        comparison = read_comparison(store, choice, lambda trial_id: store.runs(trial_id)[-1:])
        if not comparison.trials:
            raise DetError(_no_trials(comparison.messages))
        code = code_differences(store, list(comparison.experiments))
        report = make_report(store, comparison, choice, code, only_differences=args.differences)
    try:
        args.output.write_bytes(report)
    except (OSError, ValueError) as error:  # ValueError of a name with a null byte
        raise DetError(f"{args.output} cannot be written: {error}") from error
    said = f"The comparison of {format_count(len(comparison.trials), 'trial')} is in {args.output}"
    print("\n".join([*comparison.messages, said]))  # noqa: T201
    return 0


def _no_trials(messages: Sequence[str]) -> str:
    return " ".join([*messages, "Give the ids of trials, or --experiments with those of experiments that have some."])
