"""Searches whose launcher breaks its contract, at each point of its interface and in each way.

The points are those of the interface, so that a new method is broken, too. In a search of eight trials, up to four have
a first launch with a fault. In the end, all trials have trained as undisturbed ones.
"""

from __future__ import annotations

import inspect
import math
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_type_hints

import pytest
from det_testing import is_soak

from det_core.errors import LaunchError, StoreBusy
from det_core.interfaces.launcher import Allocation, Cause, Exit, Launcher, LaunchRequest, Phase, Status
from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.launch import _checked_launcher
from det_core.runner import _experiment_runner, _launch_supervision, _restart_policy

from ..waiting import wait_for
from . import simulated_cluster
from .played_launcher import PlayedAllocation
from .simulated_cluster import SimulatedAllocation, SimulatedConfig, SimulatedLauncher
from .simulated_search import assert_accounted_for, install_cluster, run_search, submit_search

pytestmark = pytest.mark.integration

TRIALS = 8
TOGETHER = 1 if is_soak() else 4
"""Number of faults in one search."""
UNUSED = {
    "rehearsal": "det doctor calls it",
    "available_slots": "only elastic trials need it",
    "adopt": "only the runner after a killed one calls it",
    "hand_over": "only a runner that was replaced calls it",
}
LOST = Exit(code=1, cause=Cause.NODE_LOST)
LIES: dict[Any, list[Any]] = {
    Allocation: [PlayedAllocation(LOST, stops=False)],
    Exit | None: [None, LOST, Exit(code=1, cause=Cause.NOT_STARTED)],
    Literal["cpu", "cuda"]: ["cuda"],
    type(None): [None],
    Status: [Status(phase=phase, nodes=["n9"], message="\0") for phase in Phase],
}
"""Answers that the interface allows but that are false, by the type that a method returns."""
ERRORS = [KeyError("a defect"), SystemExit(0), StoreBusy("not the store of the runner"), LaunchError("no such node")]
REACHED_BY = {"kill": {"preempt"}}
"""Methods that must do nothing, so that the runner calls another one."""


class Way(NamedTuple):
    """Way in which a method is broken."""

    name: str
    act: Callable[[], Any]
    """Function that returns or raises in place of the method."""


@dataclass
class Fault:
    """Fault of the launcher, or of the first launch of one trial.

    Attributes:
        owner: interface of the method.
        method: the method that is broken.
        way: the way.
        trial: the trial.
        struck: whether it was called.
    """

    owner: type
    method: str
    way: Way
    trial: int = 0
    struck: bool = False

    def __str__(self) -> str:
        return f"{self.owner.__name__}.{self.method} {self.way.name}"


released = threading.Event()
"""Set at the end of a search, so that no thread hangs for ever."""


def hang() -> None:
    released.wait(120)
    raise RuntimeError("nobody waits for this any more")


def fail(error: BaseException) -> None:
    raise error


def answer(value: object) -> Any:
    return value


def methods_of(interface: type) -> dict[str, Any]:
    """Return the types that the methods of an interface return, by name."""
    found = inspect.getmembers(interface, inspect.isfunction)
    return {name: get_type_hints(one)["return"] for name, one in found if not name.startswith("_")}


def ways_of(returned: Any) -> Iterator[Way]:
    """Yield all ways in which a method may be broken that returns a type."""
    for error in ERRORS:
        yield Way(f"raises {type(error).__name__}", partial(fail, error))
    yield Way("hangs", hang)
    if returned is not type(None):
        yield Way("returns garbage", object)
    for number, lie in enumerate(LIES[returned]):
        yield Way(f"lies {number}", partial(answer, lie))


FAULTS = [
    Fault(interface, method, way)
    for interface in (Launcher, Allocation)
    for method, returned in methods_of(interface).items()
    if method not in UNUSED
    for way in ways_of(returned)
]
SEARCHES = math.ceil(len(FAULTS) / TOGETHER)


class BrokenLauncher(Launcher):
    """Simulated cluster on which first launches have faults.

    Args:
        config: the config of the cluster.
        faults: the faults.
    """

    def __init__(self, config: SimulatedConfig, faults: list[Fault]) -> None:
        self._cluster = SimulatedLauncher(config)
        self._faults = faults

    def device(self) -> Literal["cpu", "cuda"]:
        return self._break("device", self._cluster.device)  # type: ignore[no-any-return]

    def open(self, key: str) -> None:
        self._break("open", partial(self._cluster.open, key))

    def close(self) -> None:
        self._break("close", self._cluster.close)

    def _break(self, method: str, sound: Callable[[], Any]) -> Any:
        """Break a method of the launcher at its first call, if it has a fault."""
        for fault in self._faults:
            if (fault.owner, fault.method) == (Launcher, method) and not fault.struck:
                fault.struck = True
                return fault.way.act()
        return sound()

    def start(self, request: LaunchRequest) -> Allocation:
        trial = request.info["trial.json"]["trial_id"]
        for earlier in EARLIER[request.key]:
            earlier.kill()  # the interface demands that of a second launch of a trial
        is_first = not EARLIER[request.key]
        fault = next((one for one in self._faults if is_first and one.trial == trial), None)
        if fault and fault.method == "start" and not fault.struck:
            fault.struck = True
            return fault.way.act()  # type: ignore[no-any-return]
        launch = self._cluster.start(request)
        assert isinstance(launch, SimulatedAllocation)
        EARLIER[request.key].append(launch)
        return break_launch(launch, fault) if fault and fault.owner is Allocation else launch


EARLIER: defaultdict[str, list[SimulatedAllocation]] = defaultdict(list)
"""Launches of each trial."""


def break_launch(launch: Allocation, fault: Fault) -> Allocation:
    """Return a launch with a fault."""

    def make(name: str) -> Callable[..., Any]:
        def call(self: Allocation, *args: Any) -> Any:
            if name == fault.method:
                fault.struck = True
                return fault.way.act()
            return None if name in REACHED_BY.get(fault.method, ()) else getattr(launch, name)(*args)

        return call

    broken = type("BrokenAllocation", (Allocation,), {name: make(name) for name in methods_of(Allocation)})
    return broken()  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def quick(plugin_site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    install_cluster(plugin_site)
    EARLIER.clear()
    released.clear()
    monkeypatch.setattr(_restart_policy, "FIRST_DELAY", 0.01)
    monkeypatch.setattr(_checked_launcher, "_CALL_SECONDS", 1.0)
    monkeypatch.setattr(_launch_supervision, "_START_SECONDS", 3.0)
    monkeypatch.setattr(_launch_supervision, "_END_SECONDS", 0.5)
    yield
    released.set()


@pytest.mark.parametrize(
    "faults", [FAULTS[first::SEARCHES] for first in range(SEARCHES)], ids=lambda faults: ", ".join(map(str, faults))
)
def test_a_broken_launcher_costs_only_its_own_launches(
    faults: list[Fault], store: TrackingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searcher = {"name": "random", "max_trials": TRIALS, "max_concurrent_trials": TRIALS}
    stops = [fault for fault in faults if fault.method in ("preempt", "kill")]
    cluster = {"batch_seconds": 0.2 if stops else 0.02}
    experiment = submit_search(store, tmp_path, searcher, cluster, preemption_timeout=0)
    for trial, fault in enumerate(faults, 1):
        fault.trial, fault.struck = trial, False
    monkeypatch.setattr(
        _experiment_runner, "open_launcher", lambda config: BrokenLauncher(config.launcher.options, faults)
    )

    def pause() -> None:
        running = simulated_cluster.journal.running
        if stops and all(f"{store.cluster_id}-exp-1-trial-{fault.trial}" in running for fault in stops):
            stops.clear()
            store.request_experiment_state(experiment.id, State.PAUSED)

    run_search(store, experiment.id, pause, limit=120)
    released.set()
    wait_for(lambda: not [thread for thread in threading.enumerate() if thread.name == "det-launch"])
    assert [fault for fault in faults if not fault.struck] == []
    journal = simulated_cluster.journal
    journal.errors = [error for error in journal.errors if "StaleRun" not in error]  # workers that live on are fenced
    assert_accounted_for(store, experiment, TRIALS, tmp_path)
