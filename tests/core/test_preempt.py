"""Requests to stop a script that runs without a runner."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from det_core import core
from det_core.cli import main
from det_core.core import PreemptMode
from det_core.interfaces.records import State
from det_core.tracking import open_store


def wait_until_asked(context: core.Context) -> None:
    deadline = time.monotonic() + 10
    while not context.preempt.should_preempt(auto_ack=False):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("command", "end"), [("pause", State.PAUSED), ("cancel", State.CANCELED), ("kill", State.CANCELED)]
)
def test_a_script_receives_requests_from_the_tracking_store(
    det_home: Path, command: str, end: State, capsys: Any
) -> None:
    with core.init() as context:
        assert not context.preempt.should_preempt()
        assert main(["experiment", command, str(context.trial.experiment_id)]) == 0
        wait_until_asked(context)
        context.preempt.acknowledge_preemption_signal()
    with open_store() as store:
        (experiment,) = store.experiments()
        (trial,) = store.trials(experiment.id)
        assert (experiment.state, trial.state) == (end, end)
        assert store.run(trial.id, 1).preemption_acknowledged
    assert main(["experiment", command, str(experiment.id)]) == 1
    assert "nothing is running" in capsys.readouterr().err


def test_a_script_that_ignores_a_request_is_completed(det_home: Path) -> None:
    with core.init() as context:
        os.kill(os.getpid(), signal.SIGTERM)
        assert context.preempt.should_preempt(auto_ack=False)
    with open_store() as store:
        assert store.experiments()[0].state is State.COMPLETED


@pytest.mark.parametrize("mode", PreemptMode)
def test_every_mode_works_in_one_process(det_home: Path, mode: PreemptMode) -> None:
    with core.init(preempt_mode=mode) as context:
        assert not context.preempt.should_preempt()
        os.kill(os.getpid(), signal.SIGTERM)
        assert context.preempt.should_preempt()
        assert context.preempt.should_preempt()
    with open_store() as store:
        (experiment,) = store.experiments()
        assert experiment.state is State.CANCELED
        assert store.run(store.trials(experiment.id)[0].id, 1).preemption_acknowledged


def test_signal_handlers_are_restored(det_home: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with core.init():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_misuse_raises_an_error(det_home: Path) -> None:
    with pytest.raises(ValueError, match="is not a valid PreemptMode"):
        core.init(preempt_mode="SOMETIMES")  # type: ignore[arg-type]
    context = core.init()
    with pytest.raises(RuntimeError, match=r"with core\.init\(\)"):
        context.preempt.should_preempt()
    with context:
        pass
