"""Starts workers outside of the runner: for ``python -m det_core.launch``, and for entrypoints that start their own."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from det_core.core._info import get_cluster_info
from det_core.errors import DetError, LaunchError
from det_core.interfaces.launcher import EXIT_DO_NOT_RESTART
from det_core.launch import backends
from det_core.launch._node import Node
from det_core.launch._verdict import REASON
from det_core.launch.local import gpus


def start(
    name: str,
    worker: Sequence[str],
    options: Mapping[str, Any] | None = None,
    *,
    hosts: Sequence[str] | None = None,
    node: int | None = None,
    slots: int | None = None,
    port: int | None = None,
) -> int:
    """Start the workers of this node and wait for them; errors are printed. Only in the main thread.

    What is not given is the task's, if this process belongs to one, else this machine.

    Args:
        name: of the backend.
        worker: the command of each worker.
        options: of the backend, as under ``distributed`` in a config; without any, the config's.
        hosts: the address of every node; the chief's is first.
        node: index of this one.
        slots: workers on each; without a task, as many as this machine has GPUs, or 1.
        port: free on the first node, as the one after it.

    Returns:
        The exit code for this process.
    """
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        task = get_cluster_info()
        backend = backends.open_backend(name, backends.parse_options(name, options or backends.block()))
        if hosts and node is None:
            raise LaunchError(f"which node is this? Give its index among {', '.join(hosts)}, from 0, as --node I")
        place = Node(
            hosts=hosts or (task.container_addrs if task else ["127.0.0.1"]),
            node=node if node is not None else task.container_rank if task else 0,
            slots=slots if slots is not None else len(task.slot_ids) if task else gpus() or 1,
            port=port,
        )
        return place.run(name, backend, worker, {backends.OPTIONS: json.dumps(options)} if options else {})
    except DetError as error:
        print(f"{REASON}{'; '.join(str(error).splitlines())}", file=sys.stderr)  # noqa: T201
        return EXIT_DO_NOT_RESTART
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
