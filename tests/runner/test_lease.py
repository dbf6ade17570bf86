"""Liveness of lease holders."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.processes import pid_namespace_name, process_start_time
from det_core.tracking._lease import Lease, is_dead


@pytest.fixture
def holder(store: TrackingStore) -> str:
    return Lease(store, store.create_experiment(config={}).id).holder


def with_pid(holder: str, pid: int, start: str) -> str:
    place, _, _, mark = holder.rsplit(":", 3)
    return f"{place}:{pid}:{start}:{mark}"


def test_a_living_runner_is_not_dead(holder: str) -> None:
    assert not is_dead(holder)


def test_a_runner_that_ended_or_whose_process_id_is_reusedis_dead(holder: str) -> None:
    child = subprocess.Popen(["true"])
    start = process_start_time(child.pid)
    child.wait()
    assert is_dead(with_pid(holder, child.pid, start))
    assert is_dead(with_pid(holder, os.getpid(), "1"))


@pytest.mark.parametrize(
    "process", ["", ":", ":x:1:a", f":{10**30}:1:a", ":-1:1:a", ":1:1:a\n", ":\u0664:1:a", ":" + "9" * 5000 + ":1:a"]
)
def test_a_holder_that_is_no_lease_is_not_dead(process: str) -> None:
    """Users of a server may record any text, and lists of experiments show it to all."""
    assert not is_dead(pid_namespace_name() + process)


def test_a_runner_without_a_thread_for_its_lease_leaves_the_experiment_as_it_is(
    store: TrackingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    experiment = store.create_experiment(config={})
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        Lease(store, experiment.id, State.ACTIVE)
    assert (store.lease_holder(experiment.id), store.experiment(experiment.id).state) == (None, State.QUEUED)


@pytest.mark.integration
def test_a_runner_in_a_container_with_the_same_host_name_is_not_considered_dead(
    holder: str, store: TrackingStore
) -> None:
    """The process id of a runner in another container means nothing here, so the runner must not be considered dead."""
    elsewhere = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*elsewhere, "true"], capture_output=True).returncode:
        pytest.skip("a process id namespace needs root")
    code = "from det_core.processes import pid_namespace_name; print(pid_namespace_name())"
    ran = subprocess.run([*elsewhere, sys.executable, "-c", code], capture_output=True, text=True, check=True)
    place = ran.stdout.strip()
    ours, pid, start, mark = holder.rsplit(":", 3)
    assert place.rpartition("-")[0] == ours.rpartition("-")[0]
    assert not is_dead(f"{place}:{pid}:1:{mark}")
    assert not is_dead(f"an-older-release:{pid}:{start}:{mark}")
