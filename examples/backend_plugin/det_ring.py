"""Distributed backend in one file, which starts the workers itself.

Install it with ``pip install ./examples/backend_plugin`` and select it in a config::

    resources:
      slots_per_trial: 2
    distributed:
      backend: ring

or start a script with it: ``python -m det_core.launch ring --slots 2 -- train.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing

from pydantic import BaseModel, Field

import det_core
from det_core.errors import LaunchError
from det_core.interfaces.backend import Backend, NodePlacement, WorkerCommand, WorkerRanks
from det_core.launch.worker_output import OutputRelay
from det_core.launch.worker_processes import Worker, start_worker
from det_core.specs import BackendSpec

NAMES = ("RING_NODE", "RING_NODES", "RING_SLOTS", "RING_LOCAL")


@det_core.hookimpl
def det_backends() -> Iterator[BackendSpec]:
    yield BackendSpec(
        name="ring",
        target="det_ring:Ring",
        config_model="det_ring:RingConfig",
        adapters={"pytorch": "det_ring_torch:RingTorch"},
        install="pip install det-torch",
        elastic=True,
    )


class RingConfig(BaseModel):
    grace: float = Field(default=3.0, ge=0)
    """Seconds between SIGTERM and SIGKILL for the others when a worker has failed."""


class Ring(Backend):
    def __init__(self, config: RingConfig) -> None:
        self._config = config

    def start(self, place: NodePlacement, worker: Sequence[str]) -> WorkerCommand:
        numbers = (place.node, len(place.hosts), place.slots)
        return WorkerCommand(
            argv=[sys.executable, "-m", "det_ring", str(self._config.grace), *worker],
            env=dict(zip(NAMES, map(str, numbers), strict=False)),
        )

    def ranks(self) -> WorkerRanks:
        try:
            node, nodes, slots, local = (int(os.environ[name]) for name in NAMES)
        except KeyError as missing:
            raise LaunchError(
                f"{missing} is not in the environment; start the script with: "
                "python -m det_core.launch ring --slots 2 -- train.py"
            ) from None
        return WorkerRanks(
            rank=node * slots + local,
            size=nodes * slots,
            local_rank=local,
            local_size=slots,
            cross_rank=node,
            cross_size=nodes,
        )


def main(grace: float, worker: Sequence[str]) -> int:
    """Run the launcher of this backend on a node, as `Ring.start` says, and return its exit code."""
    node, slots = int(os.environ["RING_NODE"]), int(os.environ["RING_SLOTS"])
    workers: list[Worker] = []
    with closing(OutputRelay()) as relay:
        for local in range(slots):
            env = {**os.environ, "RING_LOCAL": str(local)}
            workers.append(start_worker(worker, env))
            relay.add_worker(workers[-1], node * slots + local)
        return wait(workers, grace)


def wait(workers: Sequence[Worker], grace: float) -> int:
    """Wait for all workers, and return 0 or the exit code of the first that failed. End the others after a failure."""
    while True:
        codes = [worker.poll() for worker in workers]
        failed = [code for code in codes if code]
        if failed:
            break
        if None not in codes:
            return 0
        time.sleep(0.05)
    for worker in workers:
        worker.terminate()
    deadline = time.monotonic() + grace
    for worker in workers:
        try:
            worker.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.kill()
    return failed[0] if failed[0] > 0 else 128 - failed[0]


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
