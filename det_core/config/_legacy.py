"""Configs of release 0.12 counted in steps, each of ``batches_per_step`` batches."""

from __future__ import annotations

from typing import Any

from det_core.config._document import Document

_SEARCHER = {
    "max_steps": "max_length",
    "target_trial_steps": "max_length",
    "step_budget": "budget",
    "steps_per_round": "length_per_round",
}
_PERIODS = ("min_validation_period", "min_checkpoint_period")
_DEFAULT_BATCHES_PER_STEP = 100


def modernize(document: Document) -> tuple[str, ...]:
    """Rewrite a config of release 0.12 in place to lengths in batches.

    A config is one if it has ``batches_per_step`` or a searcher's length in steps; elsewhere a bare
    number is a length without a unit. A key is not renamed over another; it is left as unknown.

    Returns:
        What to tell the user about it.
    """
    config = document.value
    searcher = config["searcher"] if isinstance(config.get("searcher"), dict) else {}
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
