"""Conversion of configs that were written for old releases of Determined AI.

Configs of release 0.12 count in steps of ``batches_per_step`` batches each, and name search methods that no longer
exist. In release 0.38, adaptive_asha measures time by a metric.
"""

from __future__ import annotations

from typing import Any

from det_core.config._document import Document
from det_core.home import default_storage
from det_core.interfaces.storage import RETENTION_KEYS

_SEARCHER = {
    "max_steps": "max_length",
    "target_trial_steps": "max_length",
    "step_budget": "budget",
    "steps_per_round": "length_per_round",
}
_METHODS = {"adaptive": "adaptive_asha", "adaptive_simple": "adaptive_asha", "sync_halving": "async_halving"}
_PERIODS = ("min_validation_period", "min_checkpoint_period")
_DEFAULT_BATCHES_PER_STEP = 100


def convert_legacy_config(document: Document) -> tuple[str, ...]:
    """Rewrite an old config in place.

    Returns:
        Messages to show to the user, one for each kind of change.
    """
    _store_where_none_is_named(document)
    return (*_name_method(document), *_measure_length(document), *_count_in_batches(document))


def _store_where_none_is_named(document: Document) -> None:
    """Add the default store to a ``checkpoint_storage`` block that contains numbers of checkpoints only.

    Such a block relied on the storage of the cluster.
    """
    block = document.value.get("checkpoint_storage")
    if isinstance(block, dict) and block.keys() <= RETENTION_KEYS:
        document.value["checkpoint_storage"] = {**default_storage(), **block}


def _name_method(document: Document) -> tuple[str, ...]:
    """Replace the synchronous search methods, where trials wait for each other, by asynchronous ones."""
    searcher = _searcher(document)
    old = searcher.get("name")
    if not isinstance(old, str) or old not in _METHODS:
        return ()
    new = searcher["name"] = _METHODS[old]
    dropped = "; train_stragglers is ignored" if searcher.pop("train_stragglers", None) is not None else ""
    return (f"the search method {old} no longer exists: read as {new}, where no trial waits for the others{dropped}",)


def _measure_length(document: Document) -> tuple[str, ...]:
    """Rename ``max_time`` to ``max_length``, in the unit that ``time_metric`` names.

    ``stop_once`` becomes true by default, because such a search stopped trials permanently.
    """
    searcher = _searcher(document)
    if "max_time" not in searcher or "max_length" in searcher:
        return ()
    document.rename(("searcher",), "max_time", "max_length")
    metric = searcher.pop("time_metric", None)
    if metric in ("batches", "records", "epochs") and type(searcher["max_length"]) is int:
        searcher["max_length"] = {metric: searcher["max_length"]}
    became = "searcher.max_time became max_length"
    if "stop_once" in searcher:
        return (became,)
    searcher["stop_once"] = True
    return (f"{became}, and stop_once is true, as in release 0.38",)


def _searcher(document: Document) -> dict[str, Any]:
    searcher = document.value.get("searcher")
    return searcher if isinstance(searcher, dict) else {}


def _count_in_batches(document: Document) -> tuple[str, ...]:
    """Convert steps to batches.

    A config counts in steps if it has ``batches_per_step`` or a searcher's length in steps. In other configs a bare
    number is a length without a unit. An old key is left unchanged if the new key also exists. Validation then
    reports it as unknown.
    """
    config = document.value
    searcher = _searcher(document)
    steps = [old for old, new in _SEARCHER.items() if old in searcher and new not in searcher]
    if not steps and "batches_per_step" not in config:
        return ()
    batches = config.get("batches_per_step", _DEFAULT_BATCHES_PER_STEP)
    if type(batches) is not int or batches < 1:
        batches = 1  # validation reports the wrong scheduling_unit later, with all other problems
    if "batches_per_step" in config and "scheduling_unit" not in config:
        document.rename((), "batches_per_step", "scheduling_unit")
    for old in steps:
        document.rename(("searcher",), old, _SEARCHER[old])
        _to_batches(searcher, _SEARCHER[old], batches)
    for period in _PERIODS:
        _to_batches(config, period, batches)
    renamed = "".join(f", searcher.{old} became {_SEARCHER[old]}" for old in steps)
    return (f"this config counts in steps, as in release 0.12: read as {batches} batches per step{renamed}",)


def _to_batches(mapping: dict[str, Any], key: str, batches: int) -> None:
    if type(mapping.get(key)) is int:
        mapping[key] = {"batches": mapping[key] * batches}
