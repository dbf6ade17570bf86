"""Base class, context and training loop that the trials of all frameworks share."""

from __future__ import annotations

from det_core.trial._class_lookup import framework_of, load_trial_class
from det_core.trial._schedule import At, Every, Schedule
from det_core.trial._training_plan import NEVER, Period, TrainingPlan
from det_core.trial._trial_class import Trial
from det_core.trial._trial_context import DEFAULT_SEARCHER, TrialContext
from det_core.trial._trial_loop import Progress, TrialLoop

__all__ = [
    "DEFAULT_SEARCHER",
    "NEVER",
    "At",
    "Every",
    "Period",
    "TrainingPlan",
    "Progress",
    "Schedule",
    "Trial",
    "TrialContext",
    "TrialLoop",
    "framework_of",
    "load_trial_class",
]
