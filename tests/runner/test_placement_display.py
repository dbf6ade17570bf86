"""Where a trial is shown to be, without any launch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from det_core.interfaces.launcher import Phase, Status
from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import _placement_display
from det_core.runner._placement_display import PlacementDisplay, describe_status


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (Status(phase=Phase.RUNNING), ""),
        (Status(phase=Phase.QUEUED), "queued"),
        (Status(phase=Phase.RUNNING, nodes=("n1", "n2")), "running on n1, n2"),
        (Status(phase=Phase.RUNNING, handle="job 7"), "running (job 7)"),
        (Status(phase=Phase.STARTING, nodes=("n1",), handle="job 7", message="pulls"), "starting on n1 (job 7; pulls)"),
    ],
)
def test_a_status_is_described_in_one_line(status: Status, text: str) -> None:
    assert describe_status(status) == text


def test_changes_are_shown_at_once_and_other_messages_now_and_then(
    store: TrackingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(_placement_display, "time", SimpleNamespace(monotonic=lambda: now[0]))
    trial = store.create_trial(store.create_experiment(config={}).id, hparams={}, seed=0)
    lines: list[str] = []
    logs: Any = SimpleNamespace(add=lambda rank, stdtype, text: lines.append(text))
    run = store.start_run(trial.id, allocation_id="a")
    store.set_trial_state(trial.id, State.ACTIVE)
    display = PlacementDisplay(store, run, logs, lease="")

    def shown(**status: Any) -> tuple[State, str]:
        display.show(Status(**status))
        record = store.trial(trial.id)
        return record.state, record.placement

    def queued(message: str) -> tuple[State, str]:
        return shown(phase=Phase.QUEUED, message=message)

    short, every = _placement_display._SHOW_AFTER, _placement_display._EVERY
    now[0] += short / 2
    assert queued("behind 3") == (State.ACTIVE, "")  # most launches start so soon that nobody needs to know
    now[0] = 100 + short
    assert queued("behind 3") == (State.QUEUED, "queued (behind 3)")
    now[0] += every / 2
    assert queued("behind 2") == (State.QUEUED, "queued (behind 3)")
    now[0] = 100 + short + every
    assert queued("behind 1") == (State.QUEUED, "queued (behind 1)")
    assert shown(phase=Phase.STARTING, nodes=("n1",)) == (State.ACTIVE, "starting on n1")
    assert shown(phase=Phase.RUNNING, nodes=("n1",)) == (State.ACTIVE, "running on n1")
    display.clear()
    assert store.trial(trial.id).placement == ""
    assert lines == ["queued (behind 3)", "starting on n1", "running on n1"]
