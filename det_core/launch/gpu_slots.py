"""GPUs of this machine, and the names of slots that all processes of the host agree on."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from det_core.errors import LaunchDelayed

__all__ = ["count_gpus", "gpu_variables", "local_slot_names"]

_DEVICES = Path("/dev")
_DRIVER = Path("/proc/driver/nvidia/gpus")
"""Directory in which the driver describes each GPU. All environments of a host can read it, whatever is installed."""
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_ORDER = "CUDA_DEVICE_ORDER"
"""Variable by which CUDA counts the GPUs in the order of their PCI addresses, and not from the fastest one on."""
_ENTRY = re.compile(r"[0-9]+|(GPU|MIG)-.*")
"""Entry of ``CUDA_VISIBLE_DEVICES`` that may name a GPU. CUDA ignores another one, such as -1, and all after it."""
_GONE = (errno.ENOENT, errno.ENODEV)


@dataclass(frozen=True)
class Gpu:
    """GPU that this process may use.

    Attributes:
        visible_as: its entry in ``CUDA_VISIBLE_DEVICES``, an index or a UUID.
        slot: its name on the host, which does not depend on what other processes see.
        model: its model, such as ``NVIDIA H100 80GB HBM3``, or "" if the driver does not describe it.
    """

    visible_as: str
    slot: str
    model: str = ""


@dataclass(frozen=True)
class _Device:
    minor: int
    uuid: str = ""
    model: str = ""


def visible_gpus() -> list[Gpu]:
    """Return the NVIDIA GPUs that this process may use, without importing a framework.

    An index counts the GPUs in the order of their PCI addresses, as ``nvidia-smi`` does. A UUID may be shortened. An
    entry that the driver does not describe, such as a part of a GPU (MIG), is a slot of its own.
    """
    devices = _devices()
    visible = os.environ.get(_VISIBLE)
    if visible is None or not devices:
        entries = [str(index) for index in range(len(devices))]
    else:
        entries = [*takewhile(_ENTRY.fullmatch, (entry.strip() for entry in visible.split(",")))]
    gpus = [_find_gpu(entry, devices) for entry in entries]
    return list({gpu.slot: gpu for gpu in gpus}.values())


def count_gpus() -> int:
    """Return the number of NVIDIA GPUs that this process may use, without importing a framework."""
    return len(visible_gpus())


def gpu_variables(slots: Sequence[int | str]) -> dict[str, str]:
    """Return the variables with which a process sees only the GPUs of the slots, or none on a machine without GPUs.

    Args:
        slots: positions in the list of `visible_gpus`, or names as in `local_slot_names`, which stand for the same GPUs
            if others have vanished since.

    Raises:
        LaunchDelayed: a GPU has vanished.
    """
    gpus = visible_gpus()
    found: dict[int | str, Gpu] = {**dict(enumerate(gpus)), **{gpu.slot: gpu for gpu in gpus}}
    lost = [slot for slot in slots if slot not in found]
    if lost and (gpus or isinstance(lost[0], str)):
        raise LaunchDelayed(f"the GPU of slot {lost[0]} has vanished; see `det slots` and nvidia-smi")
    if not gpus:
        return {}
    return {_ORDER: "PCI_BUS_ID", _VISIBLE: ",".join(found[slot].visible_as for slot in slots)}


def local_slot_names(cpu_slots: int) -> list[str]:
    """Return the names of the slots that this process may use.

    Args:
        cpu_slots: number of slots of a machine without GPUs.
    """
    return [gpu.slot for gpu in visible_gpus()] or [f"cpu-{index}" for index in range(cpu_slots)]


def _find_gpu(entry: str, devices: Sequence[_Device]) -> Gpu:
    found = [device for device in devices if entry.startswith("GPU-") and device.uuid.startswith(entry)]
    if entry.isdecimal() and int(entry) < len(devices):
        found = [devices[int(entry)]]
    if len(found) == 1:
        return Gpu(entry, f"gpu-{found[0].minor}", found[0].model)
    return Gpu(entry, "gpu-" + re.sub("[^A-Za-z0-9._-]", "_", entry)[:90])


def _devices() -> list[_Device]:
    """Return the GPUs whose device files this process sees, in CUDA's order of their indices.

    In a container, these may be some GPUs of the host. The minor numbers of their device files are those of the host,
    but CUDA counts from 0.
    """
    names = [name.removeprefix("nvidia") for name in _names_in(_DEVICES) if name.startswith("nvidia")]
    minors = sorted(int(name) for name in names if name.isdecimal())
    described = [_read_device(_DRIVER / address / "information") for address in sorted(_names_in(_DRIVER))]
    known = [device for device in described if device.minor in minors]
    rest = set(minors).difference(device.minor for device in known)
    return [*known, *map(_Device, sorted(rest))]


def _names_in(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208
    except FileNotFoundError:  # there is no driver
        return []


def _read_device(path: Path) -> _Device:
    """Read a description of the driver, lines such as ``Device Minor: \\t 0``."""
    try:
        lines = path.read_text(errors="replace", encoding="utf-8").splitlines()
    except OSError as error:
        if error.errno not in _GONE:
            raise
        lines = []  # the GPU was removed
    facts = {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}
    minor = facts.get("Device Minor", "")
    return _Device(int(minor) if minor.isdecimal() else -1, facts.get("GPU UUID", ""), facts.get("Model", ""))
