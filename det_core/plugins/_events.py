"""Delivery of events to the plugins that observe them."""

from __future__ import annotations

from det_core import events
from det_core.plugins._registry import plugin_registry

_HOOKS: dict[type, str] = {
    events.ExperimentStarted: "det_experiment_started",
    events.ExperimentFinished: "det_experiment_finished",
    events.TrialStarted: "det_trial_started",
    events.TrialFinished: "det_trial_finished",
    events.MetricsReported: "det_metrics_reported",
    events.CheckpointSaved: "det_checkpoint_saved",
    events.CheckpointDeleted: "det_checkpoint_deleted",
    events.PreemptionRequested: "det_preemption_requested",
}


def emit_event(event: object) -> None:
    """Call the event's hook in every plugin that observes it."""
    for _ in plugin_registry().call(_HOOKS[type(event)], event=event):
        pass
