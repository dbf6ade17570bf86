"""What old configs say in other words.

Those of release 0.12 counted in steps, each of ``batches_per_step`` batches, and named search methods that are gone;
in release 0.38 adaptive_asha measured time by a metric.
"""

from __future__ import annotations

from typing import Any

from det_core.config._document import Document
from det_core.home import default_storage

_SEARCHER = {
    "max_steps": "max_length",
    "target_trial_steps": "max_length",
    "step_budget": "budget",
    "steps_per_round": "length_per_round",
}
_METHODS = {"adaptive": "adaptive_asha", "adaptive_simple": "adaptive_asha", "sync_halving": "async_halving"}
_KEPT = {"save_experiment_best", "save_trial_best", "save_trial_latest"}
_PERIODS = ("min_validation_period", "min_checkpoint_period")
_DEFAULT_BATCHES_PER_STEP = 100


def modernize(document: Document) -> tuple[str, ...]:
    """Rewrite an old config in place.

    Returns:
        What to tell the user about it, a notice for each kind of change.
    """
    _store_where_none_is_named(document)
    return (*_name_method(document), *_measure_length(document), *_count_in_batches(document))


def _store_where_none_is_named(document: Document) -> None:
    """A block that only says how many checkpoints are kept left the store to the cluster."""
    block = document.value.get("checkpoint_storage")
    if isinstance(block, dict) and block.keys() <= _KEPT:
        document.value["checkpoint_storage"] = {**default_storage(), **block}


def _name_method(document: Document) -> tuple[str, ...]:
    """Choose the asynchronous methods instead of those that made trials wait for each other."""
    searcher = _searcher(document)
    old = searcher.get("name")
    if not isinstance(old, str) or old not in _METHODS:
        return ()
    new = searcher["name"] = _METHODS[old]
    dropped = "; train_stragglers is ignored" if searcher.pop("train_stragglers", None) is not None else ""
    return (f"there is no search method {old} any more: read as {new}, where no trial waits for the others{dropped}",)


def _measure_length(document: Document) -> tuple[str, ...]:
    """Make ``max_time`` of a ``time_metric`` the length of trials; such a search stopped trials for good."""
    searcher = _searcher(document)
    if "max_time" not in searcher or "max_length" in searcher:
        return ()
    document.rename(("searcher",), "max_time", "max_length")
    metric = searcher.pop("time_metric", None)
    if metric in ("batches", "records", "epochs") and type(searcher["max_length"]) is int:
        searcher["max_length"] = {metric: searcher["max_length"]}
    searcher.setdefault("stop_once", True)
    return ("searcher.max_time became max_length, and stop_once is true, as release 0.38 searched",)


def _searcher(document: Document) -> dict[str, Any]:
    searcher = document.value.get("searcher")
    return searcher if isinstance(searcher, dict) else {}


def _count_in_batches(document: Document) -> tuple[str, ...]:
    """Turn steps into batches.

    A config counts in steps if it has ``batches_per_step`` or a searcher's length in steps; elsewhere a bare
    number is a length without a unit. A key is not renamed over another; it is left as unknown.
    """
    config = document.value
    searcher = _searcher(document)
    steps = [old for old, new in _SEARCHER.items() if old in searcher and new not in searcher]
    if not steps and "batches_per_step" not in config:
        return ()
    batches = config.get("batches_per_step", _DEFAULT_BATCHES_PER_STEP)
    if type(batches) is not int or batches < 1:
        batches = 1  # an error about scheduling_unit comes with all others
    if "batches_per_step" in config and "scheduling_unit" not in config:
        document.rename((), "batches_per_step", "scheduling_unit")
    for old in steps:
        document.rename(("searcher",), old, _SEARCHER[old])
        _to_batches(searcher, _SEARCHER[old], batches)
    for period in _PERIODS:
        _to_batches(config, period, batches)
    renamed = "".join(f", searcher.{old} became {_SEARCHER[old]}" for old in steps)
    return (f"this config counts in steps, as release 0.12 did: read as {batches} batches per step{renamed}",)


def _to_batches(mapping: dict[str, Any], key: str, batches: int) -> None:
    if type(mapping.get(key)) is int:
        mapping[key] = {"batches": mapping[key] * batches}
