"""Shared parts of the campaigns that compare trials with and without a rehearsal."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from det_testing.framework.trial_harness import TrialHarness


def draw_periods(chance: random.Random) -> dict[str, Any]:
    """Return config keys that decide when a trial reports, validates and steps its optimizer."""
    return {
        "scheduling_unit": chance.choice([1, 3]),
        "min_validation_period": {"batches": chance.choice([4, 5])},
        "optimizations": {"aggregation_frequency": chance.choice([1, 2])},
    }


def rehearsed_and_plain(harness: TrialHarness, config: Mapping[str, Any]) -> list[Any]:
    """Return the outcomes of a trial of ten batches with a rehearsal and of one without."""
    outcomes = []
    with harness.store:
        for rehearsal in (True, False):
            trial_id = harness.prepare(length={"batches": 10}, rehearsal=rehearsal, **config)
            harness.train(trial_id)
            outcomes.append(harness.outcome(trial_id))
    return outcomes
