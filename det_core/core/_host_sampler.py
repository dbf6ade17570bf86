"""Samples of the load of this host, as nested mappings of numbers by group."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil

from det_core.extras import explain_missing_extra

_log = logging.getLogger("det.core")

Sample = Mapping[str, Any]
"""Numbers by name. A value may also be a nested mapping of the same form."""

_PATHS = ("/", "/determined_shared_fs")
"""File systems whose usage is sampled, if they exist."""
_DEVICES = Path("/dev")
"""Directory in which the driver has a file ``nvidia0`` for its first GPU."""
_OF_GPU: Mapping[str, Callable[[ModuleType, Any], float]] = {
    "gpu_util": lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
    "gpu_free_memory": lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).free,
}
"""Readings of a GPU by metric name, from ``pynvml``. ``gpu_util`` is in percent, ``gpu_free_memory`` in bytes."""


class HostSampler:
    """Sampler of CPU, memory, disks, network and GPUs.

    Rates are means since the previous sample, or since the creation of the sampler for the first sample.
    """

    def __init__(self) -> None:
        psutil.cpu_percent()  # the first result is always 0.0
        self._paths = [path for path in _PATHS if Path(path).is_dir()]
        self._disk = _Rates(psutil.disk_io_counters)
        self._network = _Rates(psutil.net_io_counters)
        self._gpus = _gpus()
        self._groups: dict[str, Callable[[], Sample]] = {
            "cpu": lambda: {"cpu_util_simple": psutil.cpu_percent()},
            "memory": lambda: {"memory_free": psutil.virtual_memory().available},
            "disk": self._sample_disk,
            "network": self._sample_network,
            "gpu": lambda: {uuid: {name: ask() for name, ask in gpu.items()} for uuid, gpu in self._gpus.items()},
        }

    def sample(self) -> dict[str, Sample]:
        """Return a sample by group. Groups that this host does not have are omitted.

        Utilization is in percent, free memory in bytes, throughput in bytes per second, and ``disk_iops`` in
        operations per second.
        """
        samples = {group: take() for group, take in self._groups.items()}
        return {group: sample for group, sample in samples.items() if sample}

    def _sample_disk(self) -> Sample:
        usage = {path: {"disk_util": psutil.disk_usage(path).percent} for path in self._paths}
        rates = self._disk.since_last()
        if not rates:
            return usage
        return {
            "disk_iops": rates["read_count"] + rates["write_count"],
            "disk_throughput_read": rates["read_bytes"],
            "disk_throughput_write": rates["write_bytes"],
            **usage,
        }

    def _sample_network(self) -> Sample:
        names = {"net_throughput_sent": "bytes_sent", "net_throughput_recv": "bytes_recv"}
        rates = self._network.since_last()
        return {ours: rates[theirs] for ours, theirs in names.items() if theirs in rates}


class _Rates:
    """Increase per second of monotonic counters."""

    def __init__(self, read: Callable[[], Any]) -> None:
        self._read = read
        self._counters, self._time = read(), time.monotonic()

    def since_last(self) -> dict[str, float]:
        """Return the rates since the previous call, by counter.

        The result is empty if the system has no such counters, as in a container without disks.
        """
        before, start = self._counters, self._time
        self._counters, self._time = self._read(), time.monotonic()
        if before is None or self._counters is None:
            return {}
        seconds = max(self._time - start, 1e-9)
        old, new = before._asdict(), self._counters._asdict()
        return {name: (new[name] - old[name]) / seconds for name in new}


def _gpus() -> dict[str, dict[str, Callable[[], float]]]:
    """Return the functions that read each GPU, by metric name and by the GPU's UUID.

    The result is empty without a driver, and without the library that reads it. If only the library is missing, a
    warning says so.
    """
    try:
        import pynvml as nvml
    except ModuleNotFoundError:
        if any(_DEVICES.glob("nvidia[0-9]*")):
            _log.warning("the profile lacks the GPUs: %s", explain_missing_extra("gpu"))
        return {}
    try:
        nvml.nvmlInit()
        gpus = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        return {str(nvml.nvmlDeviceGetUUID(gpu)): _questions(nvml, gpu) for gpu in gpus}
    except nvml.NVMLError:
        return {}


def _questions(nvml: ModuleType, gpu: Any) -> dict[str, Callable[[], float]]:
    return {name: partial(ask, nvml, gpu) for name, ask in _OF_GPU.items() if _answers(nvml, partial(ask, nvml, gpu))}


def _answers(nvml: ModuleType, ask: Callable[[], float]) -> bool:
    try:
        ask()
    except nvml.NVMLError_NotSupported:  # a partitioned GPU (MIG) does not support utilization
        return False
    return True


def mean_sample(samples: Sequence[Sample]) -> dict[str, Any]:
    """Return the mean of each number over the samples that contain it."""
    values: dict[str, list[Any]] = {}
    for sample in samples:
        for name, value in sample.items():
            values.setdefault(name, []).append(value)
    return {
        name: mean_sample(found) if isinstance(found[0], Mapping) else sum(found) / len(found)
        for name, found in values.items()
    }
