"""Base class, context and training loop that the trials of all frameworks share."""

from __future__ import annotations

from det_core.trial._class_lookup import Trial, load_trial_class
from det_core.trial._class_lookup import framework_of as framework_of
from det_core.trial._training_plan import NEVER as NEVER
from det_core.trial._training_plan import At, Every, Period, TrainingPlan
from det_core.trial._training_plan import Schedule as Schedule
from det_core.trial._trial_context import DEFAULT_SEARCHER, TrialContext
from det_core.trial._trial_loop import Progress, TrialLoop

__all__ = [
    "DEFAULT_SEARCHER",
    "At",
    "Every",
    "Period",
    "TrainingPlan",
    "Progress",
    "Trial",
    "TrialContext",
    "TrialLoop",
    "load_trial_class",
]
