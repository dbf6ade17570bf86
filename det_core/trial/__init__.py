"""Base class, context and training loop that the trials of all frameworks share."""

from __future__ import annotations

from det_core.trial._context import DEFAULT_SEARCHER, TrialContext
from det_core.trial._loop import Progress, TrialLoop
from det_core.trial._plan import NEVER, Period, Plan
from det_core.trial._schedule import At, Every, Schedule
from det_core.trial._trial import Trial, framework_of, load_trial_class

__all__ = [
    "DEFAULT_SEARCHER",
    "NEVER",
    "At",
    "Every",
    "Period",
    "Plan",
    "Progress",
    "Schedule",
    "Trial",
    "TrialContext",
    "TrialLoop",
    "framework_of",
    "load_trial_class",
]
