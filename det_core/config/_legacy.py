"""Configs of release 0.12 counted in steps, each of ``batches_per_step`` batches."""

from __future__ import annotations

from det_core.config._document import Document, format_location

_SEARCHER = {
    "max_steps": "max_length",
    "target_trial_steps": "max_length",
    "step_budget": "budget",
    "steps_per_round": "length_per_round",
}
_DEFAULT_BATCHES_PER_STEP = 100


def modernize(document: Document) -> tuple[str, ...]:
    """Rewrite a config of release 0.12 in place to lengths in batches.

    A config is one if it has ``batches_per_step`` or a searcher's length in steps; elsewhere a bare
    number is a length without a unit.

    Returns:
        What to tell the user about it.
    """
    config = document.value
    searcher = config.get("searcher")
    steps = [key for key in _SEARCHER if isinstance(searcher, dict) and key in searcher]
    if not steps and "batches_per_step" not in config:
        return ()
    batches = config.get("batches_per_step", _DEFAULT_BATCHES_PER_STEP)
    if type(batches) is not int:
        batches = 1  # the error about it comes with all others
    if "batches_per_step" in config:
        document.rename((), "batches_per_step", "scheduling_unit")
    for period in ("min_validation_period", "min_checkpoint_period"):
        _to_batches(config, period, batches)
    for key in steps:
        document.rename(("searcher",), key, _SEARCHER[key])
        _to_batches(searcher, _SEARCHER[key], batches)
    renamed = "".join(f", {format_location(('searcher', key))} became {_SEARCHER[key]}" for key in steps)
    return (f"this config counts in steps, as release 0.12 did: read as {batches} batches per step{renamed}",)


def _to_batches(mapping: dict[str, object], key: str, batches: int) -> None:
    steps = mapping.get(key)
    if type(steps) is int:
        mapping[key] = {"batches": steps * batches}
