"""Runs of a trial: how each ended and what it cost, and what ended the last one."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import pairwise
from typing import Any

from det_core.interfaces.records import ExperimentRecord, Machine, Run, State, TrialRecord, configured_slots
from det_core.text import format_count, split_failure
from det_server._rendering import format_duration

_RUNNING_ON = "running on "
_SUCCESSFUL = (State.COMPLETED, State.CANCELED)
"""States of trials that nothing has ended against the will of their users."""
_PARTS = ("rank", "batch", "line")
"""Parts of a failure that are shown beside its error."""


@dataclass(frozen=True)
class RunRow:
    """Run of a trial, as a row of a table.

    Args:
        run: the run.
        end: how it ended, in words.
        seconds: time that it has taken, or None if that is unknown.
        is_over: whether it has ended.
        slots: number of its slots, or None if it is unknown.
        batches: batches that the trial kept of it, or None if the number is unknown.
        hosts: names of the machines that it has recorded.
    """

    run: Run
    end: str
    seconds: float | None
    is_over: bool
    slots: int | None
    batches: int | None
    hosts: Sequence[str]

    @property
    def took(self) -> str:
        """The time that it has taken."""
        return "–" if self.seconds is None else format_duration(self.seconds, is_over=self.is_over)  # noqa: RUF001

    @property
    def slot_hours(self) -> float | None:
        """Product of slots and hours."""
        return None if self.slots is None or self.seconds is None else self.slots * self.seconds / 3600

    @property
    def place(self) -> str:
        """Nodes and job of its launch, or the names of its machines."""
        return _place_of(self.run) or ", ".join(self.hosts)


@dataclass(frozen=True)
class Failure:
    """Failure or interruption of the last run of a trial.

    Args:
        run: the run.
        title: what happened to it.
        error: the error in one line.
        facts: names and values of what else is known.
        consequence: what follows.
        command: command that continues the trial, or "".
    """

    run: Run
    title: str
    error: str
    facts: Mapping[str, object] = field(default_factory=dict)
    consequence: str = ""
    command: str = ""


def run_rows(
    trial: TrialRecord, experiment: ExperimentRecord, runs: Sequence[Run], machines: Mapping[int, Sequence[Machine]]
) -> list[RunRow]:
    """Return the rows of the runs of a trial, which are given in order, with their machines."""
    now = datetime.now(timezone.utc)
    steps = [*(run.start_step for run in runs), trial.steps_completed]
    gains = [None if None in pair else pair[1] - pair[0] for pair in pairwise(steps)]  # type: ignore[operator]
    configured = configured_slots(experiment.config)
    return [
        RunRow(
            run,
            end_of_run(run, trial),
            ((run.end_time or now) - run.start_time).total_seconds() if run.start_time else None,
            run.end_time is not None,
            configured if run.slots is None else run.slots,
            gain,
            list(dict.fromkeys(machine.host for machine in machines.get(run.run_id, ()))),
        )
        for run, gain in zip(runs, gains, strict=True)
    ]


def total_costs(rows: Sequence[RunRow]) -> dict[str, Any]:
    """Return the sums of the time, the slot-hours and the batches of runs, of which unknown ones count as 0."""
    return {
        "took": format_duration(sum(row.seconds or 0 for row in rows), is_over=True),
        "slot_hours": sum(row.slot_hours or 0 for row in rows),
        "batches": sum(row.batches or 0 for row in rows),
    }


def last_failure(
    trial: TrialRecord, experiment: ExperimentRecord, runs: Sequence[Run], *, has_runner: bool
) -> Failure | None:
    """Return what ended the last run of a trial that ended, or None if there is nothing to say about it.

    Args:
        trial: the trial.
        experiment: its experiment.
        runs: its runs in order.
        has_runner: whether a runner executes the experiment.
    """
    run = next((run for run in reversed(runs) if run.end_time), None)
    if run is None or trial.state in _SUCCESSFUL:
        return None
    trains_again = run.run_id < trial.run_id and not trial.state.final
    if not (run.exit_code if trains_again else run.end_reason or (trial.state is State.ERROR and run.early_exit)):
        return None
    parts = split_failure(end_of_run(run, trial))
    facts = {
        "cause": run.cause,
        "exit code": _exit_code(run.exit_code),
        "nodes": _place_of(run),
        **{part: parts.get(part) for part in _PARTS},
    }
    known = {name: value for name, value in facts.items() if value}
    what = "was interrupted" if run.cause and trial.state is not State.ERROR else "failed"
    consequence, command = _consequence(trial, experiment, run, has_runner=has_runner)
    return Failure(run, f"Run {run.run_id} {what}", parts["error"], known, consequence, command)


def _place_of(run: Run) -> str:
    """Return the nodes and the job of the launch of a run."""
    return run.placement.removeprefix(_RUNNING_ON)


def _exit_code(code: int | None) -> str:
    """Return the exit code of processes in words, or "" if it says nothing."""
    if code is None or code >= 0:
        return str(code or "")
    known = {one.value: one.name for one in signal.Signals}
    return f"signal {-code}" + (f" ({known[-code]})" if -code in known else "")


def _consequence(trial: TrialRecord, experiment: ExperimentRecord, run: Run, *, has_runner: bool) -> tuple[str, str]:
    """Return what follows the end of a run, and the command that continues the trial, or ""."""
    if experiment.unmanaged:
        return "", ""
    most = experiment.config.get("max_restarts")
    most = most if isinstance(most, int) else 0
    used = f"{min(trial.restarts, most)} of {most} restarts used"
    if trial.state is State.ERROR:
        if trial.restarts > most:
            return f"The trial is given up, because it may restart {format_count(most, 'time')} (max_restarts).", ""
        if run.cause:
            return f"The trial is given up, after {trial.interruptions} interruptions, {used}.", ""
        return f"The trial is given up, because a restart would fail in the same way. {used.capitalize()}.", ""
    resume = f"det experiment resume {experiment.id}"
    if trial.state is State.PAUSED:
        return f"The trial is paused, {used}. It continues from its latest checkpoint with", resume
    if not has_runner:
        return f"Nothing executes the experiment at the moment, {used}. It continues with", resume
    if run.run_id < trial.run_id:
        return f"The trial continues in run {trial.run_id}, {used}.", ""
    return f"The trial starts again soon, {used}.", ""


def reason_of_failure(trial: TrialRecord, runs: Sequence[Run]) -> str:
    """Return why a trial failed, or "" if it did not or the reason is unknown.

    Args:
        trial: the trial.
        runs: its runs in order.
    """
    if trial.state is not State.ERROR or not runs or not (runs[-1].end_reason or runs[-1].early_exit):
        return ""
    return end_of_run(runs[-1], trial)


def end_of_run(run: Run, trial: TrialRecord) -> str:
    """Return why a run ended, in words."""
    if run.run_id == trial.run_id and run.end_time is None and not trial.state.final:
        return "has not ended"
    if run.early_exit:
        return run.early_exit.removeprefix("EXITED_REASON_").replace("_", " ").lower()
    if run.end_reason:
        return run.end_reason
    return "stopped before its work was done, to continue later" if run.preemption_acknowledged else "done"
