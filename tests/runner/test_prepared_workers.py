"""Workers of trial classes with one slot are forks of a process that has imported their modules."""

from __future__ import annotations

import pytest

from det_core.interfaces.records import ExperimentRecord, State
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import ExperimentRunner

from .conftest import Submit

pytestmark = pytest.mark.integration

REPORT = """import atexit
def report():
    import gc, types  # which leaves out objects from before a fork
    found = [one.__name__ for one in gc.get_objects() if isinstance(one, types.ModuleType)]
    print(*sorted(name for name in found if name.startswith("det_")))
atexit.register(report)
"""


def late_imports(store: TrackingStore, experiment: ExperimentRecord) -> list[str]:
    """Run a trial, and return the modules of det that its worker has imported itself."""
    assert ExperimentRunner(store, experiment.id).run() is State.COMPLETED
    (trial,) = store.trials(experiment.id)
    (line,) = (line.log for line in store.logs(trial.id) if line.stdtype == "stdout")
    return line.split()


def test_a_worker_imports_nothing_of_det_and_its_framework(store: TrackingStore, new_experiment: Submit) -> None:
    assert late_imports(store, new_experiment(REPORT)) == []


@pytest.mark.usefixtures("new_processes")
def test_a_config_may_ask_for_new_processes(store: TrackingStore, new_experiment: Submit) -> None:
    experiment = new_experiment(REPORT, launcher={"type": "local", "prepare": False})
    assert "det_core.trial" in late_imports(store, experiment)
