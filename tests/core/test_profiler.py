"""Profiler on this host, with a real tracking store."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import psutil
import pynvml
import pytest

from det_core import core
from det_core.core import _host_sampler
from det_core.core._host_sampler import HostSampler, mean_sample
from det_core.core._profiler import ProfilerContext
from det_core.interfaces.tracking import TrackingStore
from det_core.package_commands import package_command
from det_core.tracking import open_store

from ..waiting import wait_for


@pytest.fixture
def store(det_home: Path) -> Iterator[TrackingStore]:
    with open_store() as store:
        yield store


def running() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "det-profiler"]


def test_the_groups_of_this_host_are_recorded(store: TrackingStore) -> None:
    with core.init() as context:
        context.profiler.on(sampling_interval=0.1, samples_per_report=2)
        sum(number * number for number in range(3_000_000))  # so that the first sample of the CPU is not idle
        wait_for(lambda: len(store.system_metrics(1, group="cpu")) >= 2)
        context.profiler.off()
        assert running() == []
    found = store.system_metrics(1)
    assert {"cpu", "memory", "disk", "network"} <= {row.group for row in found}
    agent = socket.gethostname()
    assert {tuple(row.metrics) for row in found} == {(agent,)}
    cpu = store.system_metrics(1, group="cpu")[0].metrics[agent]
    memory = store.system_metrics(1, group="memory")[0].metrics[agent]
    disk = store.system_metrics(1, group="disk")[0].metrics[agent]
    network = store.system_metrics(1, group="network")[0].metrics[agent]
    assert 0 < cpu["cpu_util_simple"] <= 100
    assert 0 < memory["memory_free"] < psutil.virtual_memory().total
    assert 0 < disk["/"]["disk_util"] <= 100
    assert set(network) == {"net_throughput_sent", "net_throughput_recv"}
    assert list(store.metrics(1)) == []


def test_on_and_off_may_be_repeated(store: TrackingStore) -> None:
    with core.init() as context:
        context.profiler.off()
        for _ in range(2):
            context.profiler.on(sampling_interval=60)
            context.profiler.on()
            assert len(running()) == 1
            start = time.monotonic()
            context.profiler.off()
            context.profiler.off()
            assert time.monotonic() - start < 30  # it does not wait for the next sample
            assert running() == []


def test_remaining_samples_are_recorded_when_the_context_exits(
    store: TrackingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples: list[Any] = []
    sample = HostSampler.sample
    monkeypatch.setattr(HostSampler, "sample", lambda sampler: samples.append(sample(sampler)) or samples[-1])
    with core.init() as context:
        context.profiler.on(sampling_interval=0.1, samples_per_report=1000)
        wait_for(lambda: len(samples) > 1)
    assert running() == []
    assert len(store.system_metrics(1, group="cpu")) == 1


@pytest.mark.parametrize("interval", [0, 0.09, -1, float("nan"), "1", None, True])
def test_invalid_intervals_are_rejected(interval: Any) -> None:
    with core.init() as context, pytest.raises(ValueError, match=r"sampling_interval is .*; expected seconds"):
        context.profiler.on(sampling_interval=interval)


@pytest.mark.parametrize("samples", [0, -1, 1.0, "1", None, True])
def test_invalid_counts_are_rejected(samples: Any) -> None:
    with core.init() as context, pytest.raises(ValueError, match=r"samples_per_report is .*; expected an integer"):
        context.profiler.on(samples_per_report=samples)


def test_workers_other_than_local_rank_0_do_not_sample(store: TrackingStore) -> None:
    with core.init() as context:
        run = store.run(context.trial.trial_id, context.trial.trial_run_id)
        profiler = ProfilerContext(store, run, "agent", local_rank=1)
        profiler.on()
        assert running() == []
        profiler.off()


def test_an_error_stops_the_profiler_but_not_the_training(
    store: TrackingStore, caplog: pytest.LogCaptureFixture
) -> None:
    with core.init() as context:
        context.profiler.on(sampling_interval=0.1, samples_per_report=1)
        store.start_run(1, allocation_id="another")
        wait_for(lambda: not running())
        context.profiler.on(sampling_interval=60)  # it can be tried again
        assert len(running()) == 1
    assert "the profiler stopped: StaleRun: run 1 of trial 1 may not write" in caplog.text


def test_the_first_sample_of_the_cpu_counts_from_the_start() -> None:
    sampler = HostSampler()
    start = time.monotonic()
    while time.monotonic() - start < 0.3:
        sum(range(1000))
    assert sampler.sample()["cpu"]["cpu_util_simple"] > 0


def test_a_host_without_disks_and_interfaces_has_fewer_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "disk_io_counters", lambda: None)
    monkeypatch.setattr(psutil, "net_io_counters", lambda: None)
    sample = HostSampler().sample()
    assert "network" not in sample
    assert set(sample["disk"]) == {"/"}


class Counters(NamedTuple):
    bytes_sent: int
    bytes_recv: int


def test_rates_are_per_second(monkeypatch: pytest.MonkeyPatch) -> None:
    counters, clock = iter([Counters(100, 0), Counters(400, 6)]), iter([10.0, 12.0])
    monkeypatch.setattr(_host_sampler, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    assert _host_sampler._Rates(lambda: next(counters)).since_last() == {"bytes_sent": 150.0, "bytes_recv": 3.0}


def test_a_mean_covers_the_samples_that_contain_the_number() -> None:
    samples = [{"cpu": {"x": 1}, "gpu": {"a": {"u": 10}}}, {"cpu": {"x": 4, "y": 2}}]
    assert mean_sample(samples) == {"cpu": {"x": 2.5, "y": 2.0}, "gpu": {"a": {"u": 10.0}}}


def test_a_warning_names_the_library_if_only_it_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(_host_sampler, "_DEVICES", tmp_path)
    assert "gpu" not in HostSampler().sample()
    assert caplog.text == ""
    (tmp_path / "nvidia0").touch()
    sampler = HostSampler()
    assert "gpu" not in {**sampler.sample(), **sampler.sample()}
    assert caplog.messages == [
        "the profile lacks the GPUs: metrics of NVIDIA GPUs need nvidia-ml-py, which is not installed; "
        f"type: {package_command('install', 'det-core[gpu]')}"
    ]


def test_gpus_are_sampled_if_there_are_any() -> None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        assert "gpu" not in HostSampler().sample()
        return
    for gpu in HostSampler().sample()["gpu"].values():
        assert gpu["gpu_free_memory"] > 0
        assert 0 <= gpu.get("gpu_util", 0) <= 100


@pytest.mark.gpu
def test_samples_follow_the_memory_of_the_gpu() -> None:
    """NVML counts in bytes, and names a GPU by the UUID that CUDA has without its prefix."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        pytest.skip("needs a GPU")
    torch = pytest.importorskip("torch")
    own = str(torch.cuda.get_device_properties(0).uuid)
    sampler, size = HostSampler(), 1 << 30
    before = {uuid.removeprefix("GPU-"): gpu for uuid, gpu in sampler.sample()["gpu"].items()}
    occupied = torch.ones(size, dtype=torch.uint8, device="cuda:0")
    after = {uuid.removeprefix("GPU-"): gpu for uuid, gpu in sampler.sample()["gpu"].items()}
    assert before[own]["gpu_free_memory"] - after[own]["gpu_free_memory"] >= occupied.nbytes
    assert all(0 <= gpu.get("gpu_util", 0) <= 100 for gpu in after.values())
