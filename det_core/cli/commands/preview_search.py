"""Command ``det preview-search``, which shows the trials and lengths of a search without starting it."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from det_core.cli._command_table import JSON, make_argument, set_up_command
from det_core.cli.commands.run import read_config
from det_core.cli.render.printing import print_json
from det_core.errors import DetError
from det_core.text import format_count, format_facts, format_table

if TYPE_CHECKING:
    from det_core.config import ExperimentConfig
    from det_core.search.simulation import SimulatedOutcome, SimulateTraining

_ARGUMENTS = (
    make_argument("config", type=Path, metavar="CONFIG", help="the experiment config, in YAML"),
    JSON,
)
_ONE = {"batches": "batch", "epochs": "epoch", "records": "record"}
_MOST_ORDERS = 100_000
_MOST_SECONDS = 60
_TO_CHANGE = {
    "single": "max_length",
    "random": "max_trials and max_length; adaptive_asha stops poor trials early",
    "grid": "the counts of the hyperparameters, and max_length",
    "async_halving": "max_trials; more num_rungs or a higher divisor stop more trials early",
    "adaptive_asha": "max_trials; mode aggressive or more max_rungs stop more trials early, conservative fewer",
    "pbt": "population_size, num_rounds and length_per_round",
}


@dataclass(frozen=True, kw_only=True)
class SearchPreview:
    """Result of a simulated search with random metrics."""

    searcher: str
    trials: int
    at_once: int
    """Maximum number of trials that train at the same time."""
    unit: str | None
    """Unit of all lengths, or None if the trial's code decides on it."""
    lengths: Sequence[Mapping[str, int | None]]
    """Numbers of trials by length, the shortest first. The length None means that the command decides when to stop."""
    total: int | None
    """Sum of the lengths of all trials, or None if a command decides when to stop."""
    full_trainings: float | None
    """``total`` divided by the length of a full training, or None if either is unknown."""
    outline: Sequence[str]
    """Lines in which the search method describes the search."""
    grid: Mapping[str, int]
    """Number of points by hyperparameter. Empty unless the search is a grid."""
    conditional: Sequence[Mapping[str, str]]
    """Hyperparameters that only some trials have, each with its name, its values and the item of a categorical."""
    to_change: str
    """Options that change the amount of training. Empty for search methods of other distributions."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to the parser."""
    set_up_command(parser, _run, _ARGUMENTS, "adaptive.yaml")


def _run(args: argparse.Namespace) -> int:
    preview = _preview(read_config(args.config), args.config.parent)
    if args.json:
        print_json(preview)
    else:
        print(_text(preview))
    return 0


def _preview(config: ExperimentConfig, directory: Path) -> SearchPreview:
    from det_core.config import grid_axes
    from det_core.search.method_selection import open_search_method
    from det_core.search.simulation import simulate_search

    lengths: dict[int, int | None] = {}
    at_once = 0
    end = time.monotonic() + _MOST_SECONDS
    with open_search_method(config, directory) as method:
        outline = method.outline()
        for number, result in enumerate(simulate_search(method, _random_training(config), slots=_MOST_ORDERS)):
            if number == _MOST_ORDERS or time.monotonic() > end:
                raise DetError(
                    f"the search has not ended after {number} orders to train, of at most {_MOST_ORDERS} in "
                    f"{_MOST_SECONDS} seconds; lower its number of trials, or check that the method closes them"
                )
            at_once = max(at_once, result.at_once)
            lengths[result.request_id] = result.length
    known = [length for length in lengths.values() if length is not None]
    total = sum(known) if len(known) == len(lengths) else None
    block = config.searcher
    full = block.max_length.value if block.max_length else max(known, default=0)
    return SearchPreview(
        searcher=block.name,
        trials=len(lengths),
        at_once=at_once,
        unit=block.unit.value if block.unit else None,
        lengths=[
            {"trials": trials, "length": length}
            for length, trials in sorted(Counter(lengths.values()).items(), key=lambda item: item[0] or 0)
        ],
        total=total,
        full_trainings=total / full if total and full else None,
        outline=outline,
        grid=grid_axes(config.hyperparameters) if block.name == "grid" else {},
        conditional=list(_conditional_hyperparameters(config.hyperparameters)),
        to_change=_TO_CHANGE.get(block.name, ""),
    )


def _conditional_hyperparameters(choice: Any, name: str = "", item: str = "") -> Iterator[dict[str, str]]:
    """Yield what is defined within items of categoricals.

    Args:
        choice: a hyperparameter, a mapping with hyperparameters, or a plain value.
        name: its name.
        item: the item that contains it.
    """
    if isinstance(choice, Mapping):
        for key, part in choice.items():
            yield from _conditional_hyperparameters(part, f"{name}.{key}" if name else key, item)
    kind = getattr(choice, "type", "const")
    if item and kind != "const":
        values = f"one of {len(choice.vals)}" if kind == "categorical" else "{:g} to {:g}".format(*choice.limits)
        yield {"name": name, "values": f"{kind}, {values}", "if": item}
    for number, option in enumerate(choice.vals if kind == "categorical" else (), 1):
        yield from _conditional_hyperparameters(option, name, f"{name} is item {number}")


def _random_training(config: ExperimentConfig) -> SimulateTraining:
    """Return a function that simulates training. Each trial reports the same random metric at every length."""
    from det_core.search.hyperparameter_sampling import seeded_generator
    from det_core.search.simulation import SimulatedOutcome

    def train(trial: int, hparams: Mapping[str, Any], start: int, length: int | None) -> SimulatedOutcome:
        metric = seeded_generator(config.reproducibility.experiment_seed, "preview", trial).random()
        return SimulatedOutcome(seconds=(length or 1) - start, metric=metric)

    return train


def _length_text(length: int, unit: str) -> str:
    return format_count(length, _ONE.get(unit, unit), unit).rstrip()


def _text(preview: SearchPreview) -> str:
    unit = preview.unit or ""
    rows = [
        (row["trials"], "until they end" if row["length"] is None else _length_text(row["length"], unit))
        for row in preview.lengths
    ]
    conditional = [tuple(row.values()) for row in preview.conditional]
    full = preview.full_trainings
    details = {
        "at once": format_count(preview.at_once, "trial"),
        "in all": preview.total
        and _length_text(preview.total, unit) + (f", {full:.1f} full trainings" if full else ""),
        "grid": " x ".join(f"{points} {name}" for name, points in preview.grid.items()),
        "to change it": preview.to_change,
    }
    return "\n".join(
        (
            f"{preview.searcher}: {format_count(preview.trials, 'trial')}",
            *preview.outline,
            "",
            format_table(("trials", "train for"), rows),
            "",
            *([format_table(("only some trials have", "values", "if"), conditional), ""] if conditional else ()),
            format_facts(details),
            "Simulated with random metrics; nothing was started.",
        )
    )
