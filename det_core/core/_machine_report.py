"""Description of this machine, which a thread records while the trial trains."""

from __future__ import annotations

import logging
import os
import platform
import re
import sys
import threading
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from det_core.core._distributed import DistributedContext
from det_core.errors import TrackingError
from det_core.interfaces.records import LARGEST_SAMPLE, MAX_GPUS, MAX_MACHINES, Machine, Run
from det_core.interfaces.tracking import TrackingStore

_log = logging.getLogger("det.core")

_DEVICES = Path("/dev")
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_INDICES = re.compile(r"(\d+|GPU-[0-9a-f-]+)(,(\d+|GPU-[0-9a-f-]+))*")
"""Value of ``CUDA_VISIBLE_DEVICES`` that ``nvidia-smi`` understands, too."""
_ASK_DRIVER = ("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits")
_DRIVER_SECONDS = 10.0
_CLOSE_SECONDS = 2.0
"""Seconds for which the end of a process waits for the record. The driver of a broken GPU may never answer."""
_INSTALLED = re.compile(r"([\w.-]+?)-([\w.!+]+)(?:-py[\d.]+)?\.(?:dist|egg)-info", re.ASCII)
"""Name of the directory with the metadata of a package."""
_MOST_ENTRIES = 20_000
"""Maximum number of entries of a directory in which packages are looked for."""


class MachineReport:
    """Report of the machine of a worker, which the first worker of each node makes.

    Args:
        store: the tracking store.
        run: the run of the worker.
        distributed: rank of the worker.
    """

    def __init__(self, store: TrackingStore, run: Run, distributed: DistributedContext) -> None:
        self._store = store
        self._run = run
        self._node = distributed.cross_rank
        self._reports = distributed.local_rank == 0 and self._node < MAX_MACHINES
        self._thread = threading.Thread(target=self._report, name="det-machine", daemon=True)

    def start(self) -> None:
        """Start the thread, which training does not wait for."""
        if self._reports:
            self._thread.start()

    def close(self) -> None:
        """Wait for the end of the thread, if it was started, for a limited time."""
        if self._thread.ident is not None:
            self._thread.join(_CLOSE_SECONDS)

    def _report(self) -> None:
        try:
            self._store.record_machine(self._run.trial_id, self._run.run_id, describe_machine(self._node))
        except TrackingError as error:
            _log.warning("the machine of this run is not recorded: %s", error)


def describe_machine(node: int) -> Machine:
    """Return what is known about this machine and the packages of this process.

    Args:
        node: index of this machine among those of the run.
    """
    kernel = os.uname()
    return Machine(
        host=kernel.nodename,
        node=node,
        system=_system(),
        kernel=f"{kernel.sysname} {kernel.release} {kernel.machine}",
        python=platform.python_version(),
        cpus=os.cpu_count() or 0,
        cpu_model=_cpu_model(),
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        gpus=_gpus(),
        packages=installed_packages(sys.path),
    )


def installed_packages(places: list[str]) -> dict[str, str]:
    """Return the versions of the packages in directories, the first of which counts, as far as a record has room.

    The names of directories say enough. To read the metadata in them takes a hundred times as long.
    """
    found: dict[str, str] = {}
    for place in places:
        with suppress(OSError), os.scandir(place or ".") as entries:  # it is missing, or an archive
            for match in filter(None, (_INSTALLED.fullmatch(one.name) for one in islice(entries, _MOST_ENTRIES))):
                found.setdefault(re.sub("[-_.]+", "-", match[1]).lower(), match[2])
    left = LARGEST_SAMPLE - len("{}")
    kept: dict[str, str] = {}
    for name, version in sorted(found.items()):
        left -= len(name) + len(version) + len('"":"",')
        if left < 0:
            break
        kept[name] = version
    return kept


def _system() -> str:
    with suppress(OSError):  # macOS has no such file
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    return " ".join(filter(None, (platform.system(), platform.mac_ver()[0])))


def _cpu_model() -> str:
    with suppress(OSError), open("/proc/cpuinfo", "rb") as file:  # noqa: PTH123
        if found := re.search(rb"^model name\s*: (.*)$", file.read(4096), re.MULTILINE):
            return found[1].decode(errors="replace")
    return ""


def _gpus() -> list[dict[str, Any]]:
    """Return the name, the memory and the driver of each NVIDIA GPU that this process sees."""
    visible = os.environ.get(_VISIBLE)
    if visible == "" or not any(_DEVICES.glob("nvidia[0-9]*")):
        return []
    only = ("-i", visible) if visible and _INDICES.fullmatch(visible) else ()
    import subprocess  # only machines with a GPU need it

    try:
        done = subprocess.run([*_ASK_DRIVER, *only], capture_output=True, timeout=_DRIVER_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        _log.info("the GPUs of this machine are not recorded: %s", error)
        return []
    lines = (line.rsplit(",", 2) for line in done.stdout.decode(errors="replace").splitlines()[:MAX_GPUS])
    return [
        {"name": name.strip(), "memory": int(mib) << 20 if mib.strip().isdecimal() else 0, "driver": driver.strip()}
        for name, mib, driver in (line for line in lines if len(line) == 3)
    ]
