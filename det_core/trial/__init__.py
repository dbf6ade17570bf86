"""What every framework's trials share: the base class, the context, and the loop that drives them."""

from __future__ import annotations

from det_core.trial._context import TrialContext
from det_core.trial._loop import TrialLoop
from det_core.trial._schedule import Schedule
from det_core.trial._trial import Trial, load_trial_class

__all__ = ["Schedule", "Trial", "TrialContext", "TrialLoop", "load_trial_class"]
