"""Launcher that starts nothing: the ends of its launches are given, and functions stand for their workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from det_core import storage
from det_core.core import open_storage_block
from det_core.interfaces.launcher import Allocation, Cause, Exit, Launcher, LaunchRequest, Phase, Status
from det_core.interfaces.records import MetricsReport
from det_core.interfaces.tracking import TrackingStore


@dataclass
class Raising:
    """Launch with a method that raises.

    Attributes:
        method: the method.
        end: end of the launch, or None for workers that run until they are killed.
        error: class of the error.
    """

    method: str
    end: Exit | None = None
    error: type[Exception] = KeyError


End = Exit | Exception | Raising | None
Step = End | Callable[[LaunchRequest], End]
"""End of a launch, an error of `Launcher.start`, or a function that acts as the workers do and returns either. None
stands for workers that run until they are requested to stop."""

SUCCESS = Exit(code=0)
FAILURE = Exit(code=1)


class PlayedLauncher(Launcher):
    """Launcher whose launches end as given, in order.

    Args:
        steps: what the launches do.
        stops: whether workers that run end successfully when they are requested to stop.
    """

    def __init__(self, *steps: Step, stops: bool = False) -> None:
        self.steps = list(steps)
        self._stops = stops
        self.requests: list[LaunchRequest] = []
        self.allocations: list[PlayedAllocation] = []

    def device(self) -> Literal["cpu", "cuda"]:
        return "cpu"

    def start(self, request: LaunchRequest) -> Allocation:
        self.requests.append(request)
        step = self.steps.pop(0)
        end = step(request) if callable(step) else step
        if isinstance(end, Exception):
            raise end
        self.allocations.append(PlayedAllocation(end, stops=self._stops))
        return self.allocations[-1]


class PlayedAllocation(Allocation):
    """Launch that has ended, or that ends when it is killed."""

    def __init__(self, end: Exit | Raising | None, *, stops: bool) -> None:
        self.end = end.end if isinstance(end, Raising) else end
        self._broken = end if isinstance(end, Raising) else None
        self._stops = stops
        self.calls: list[str] = []
        """Names of the methods that were called, without `wait` and `status`."""

    def wait(self, timeout: float) -> Exit | None:
        self._break("wait")
        return self.end

    def status(self) -> Status:
        self._break("status")
        is_withdrawn = self.end is not None and self.end.cause is Cause.NOT_STARTED
        return Status(phase=Phase.STARTING if is_withdrawn else Phase.RUNNING)

    def preempt(self) -> None:
        self.calls.append("preempt")
        self._break("preempt")
        if self._stops:
            self.end = SUCCESS

    def kill(self) -> None:
        self.calls.append("kill")
        self._break("kill")
        self.end = Exit(code=-9)

    def hand_over(self) -> None:
        self.calls.append("hand_over")

    def close(self) -> None:
        self.calls.append("close")
        self._break("close")

    def _break(self, method: str) -> None:
        if self._broken and method == self._broken.method:
            raise self._broken.error(f"a defect of {method}")


def ended_by(cause: Cause, code: int = 1) -> Exit:
    return Exit(code=code, cause=cause, message="says the engine")


def run_ids(request: LaunchRequest) -> dict[str, int]:
    """Return the trial and the run of a launch, as arguments of the store's methods."""
    trial = request.info["trial.json"]
    return {"trial_id": trial["trial_id"], "run_id": trial["trial_run_id"]}


def report_metrics(store: TrackingStore, request: LaunchRequest, group: str, steps: int, **metrics: Any) -> None:
    """Report metrics after a number of batches, as the workers of a launch do."""
    store.report_metrics([MetricsReport(**run_ids(request), group=group, steps_completed=steps, metrics=metrics)])


def save_checkpoint(store: TrackingStore, request: LaunchRequest, steps: int) -> None:
    """Save a checkpoint after a number of batches, as the workers of a launch do."""
    block, ids = request.info["trial.json"]["config"]["checkpoint_storage"], run_ids(request)
    uuid = f"after-{steps}-in-{ids['trial_id']}"
    store.begin_checkpoint(uuid, **ids, storage=block)
    resources = storage.save_checkpoint(open_storage_block(block), uuid, {}, {"steps_completed": steps})
    store.complete_checkpoint(uuid, run_id=ids["run_id"], steps_completed=steps, resources=resources, metadata={})
