"""Assignment of slots, and of the GPUs that belong to them, to the trials of this machine."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Sequence
from pathlib import Path

from det_core.errors import LaunchDelayed, LaunchError

_DEVICES = Path("/dev")
_VISIBLE = "CUDA_VISIBLE_DEVICES"


class SlotPool:
    """Slots of this machine, of which several trials take some at a time.

    Attributes:
        size: number of slots, > 0.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._free = set(range(size))
        self._lock = threading.Lock()

    def take(self, count: int) -> list[int]:
        """Take the lowest free slots.

        Args:
            count: number of slots.

        Raises:
            LaunchError: the machine has fewer slots.
            LaunchDelayed: not enough of them are free.
        """
        if count > self.size:
            more = "" if count_gpus() else ", or set launcher: {type: local, slots: N}"
            raise LaunchError(
                f"the trial needs {count} slots, but this machine has {self.size}; "
                f"lower resources.slots_per_trial{more}"
            )
        with self._lock:
            if count > len(self._free):
                raise LaunchDelayed(f"the trial needs {count} slots, but {len(self._free)} of {self.size} are free")
            slots = sorted(self._free)[:count]
            self._free.difference_update(slots)
        return slots

    def give_back(self, slots: Collection[int]) -> None:
        """Return slots that `take` returned."""
        with self._lock:
            self._free.update(slots)


def gpu_variables(slots: Sequence[int]) -> dict[str, str]:
    """Return the variables with which a process sees only the GPUs of the slots, or none on a machine without GPUs."""
    gpus = _gpu_ids()
    return {_VISIBLE: ",".join(gpus[slot] for slot in slots)} if gpus else {}


def count_gpus() -> int:
    """Return the number of NVIDIA GPUs that this process may use, without importing a framework."""
    return len(_gpu_ids())


def _gpu_ids() -> list[str]:
    """Return the ids of the usable GPUs as in ``CUDA_VISIBLE_DEVICES``, which limits them if it is set."""
    numbers = [path.name.removeprefix("nvidia") for path in _DEVICES.glob("nvidia*")]
    found = sorted((number for number in numbers if number.isdigit()), key=int)
    visible = os.environ.get(_VISIBLE)
    return found if visible is None or not found else [name for name in visible.split(",") if name not in ("", "-1")]
