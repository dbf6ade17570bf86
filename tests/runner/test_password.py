"""The database's password reaches the processes that need it, and is on no command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import start_detached
from det_core.tracking import open_store
from det_core.tracking.control import request_experiment_stop

from ..postgresql import running_postgresql
from ..waiting import wait_for
from .conftest import Submit

pytestmark = pytest.mark.integration

PASSWORD = "hunter2"


@pytest.fixture
def store(det_home: Path) -> Iterator[TrackingStore]:
    with running_postgresql() as server:
        url = server.create_database().replace("postgres@", f"postgres:{PASSWORD}@")
        with open_store(url) as store:
            yield store


def test_the_password_is_in_no_arguments_and_no_environment(store: TrackingStore, new_experiment: Submit) -> None:
    experiment = new_experiment("def on_batch(self, batch): time.sleep(0.1)", scheduling_unit=1)
    start_detached(store, experiment.id)
    runner = psutil.Process(int(str(store.lease_holder(experiment.id)).rsplit(":", 3)[1]))
    try:
        wait_for(lambda: any(trial.steps_completed for trial in store.trials(experiment.id)))
        processes = [runner, *runner.children(recursive=True)]
        assert len(processes) > 1
        for process in processes:
            assert not [word for word in process.cmdline() if PASSWORD in word]
            assert not [name for name, value in process.environ().items() if PASSWORD in value]
    finally:
        request_experiment_stop(store, experiment.id, State.STOPPING_KILLED)
        runner.wait(240)
