"""Start of workers outside of the runner, by ``python -m det_core.launch`` or an entrypoint of the user."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from det_core.core._cluster_info import get_cluster_info
from det_core.core.failure_notes import FAILURE_PREFIX
from det_core.core.script_command import STARTED_BY
from det_core.errors import DetError, LaunchError
from det_core.interfaces.launcher import EXIT_DO_NOT_RESTART
from det_core.launch import backends
from det_core.launch._node import Node
from det_core.launch.engine_signals import shield_from_engine
from det_core.launch.gpu_slots import count_gpus


def start_workers(
    name: str,
    worker: Sequence[str],
    options: Mapping[str, Any] | None = None,
    *,
    hosts: Sequence[str] | None = None,
    node: int | None = None,
    slots: int | None = None,
    port: int | None = None,
) -> int:
    """Start the workers of this node, wait for them, and print errors. Must be called in the main thread.

    Missing arguments are taken from the task to which this process belongs, or describe this machine alone.

    Args:
        name: name of the backend.
        worker: command of each worker.
        options: options of the backend, as under ``distributed`` in a config. By default they come from the config.
        hosts: addresses of all nodes, starting with that of the chief.
        node: index of this node.
        slots: number of workers on each node. Without a task, it is the number of GPUs of this machine, or 1.
        port: port that is free on the first node, as is the next one.

    Returns:
        The exit code for this process.
    """
    if not shield_from_engine():
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        task = get_cluster_info()
        backend = backends.open_backend(name, backends.parse_options(name, options or backends.distributed_block()))
        if hosts and node is None:
            raise LaunchError(
                f"the index of this node is missing; give its position in {', '.join(hosts)}, from 0, as --node I"
            )
        rendezvous_port = task.rendezvous.port if task and task.rendezvous else None
        place = Node(
            hosts=hosts or (task.container_addrs if task else ["127.0.0.1"]),
            node=node if node is not None else task.container_rank if task else 0,
            slots=slots if slots is not None else len(task.slot_ids) if task else count_gpus() or 1,
            port=port if port is not None or hosts else rendezvous_port,
        )
        variables = {STARTED_BY: json.dumps(sys.orig_argv)}
        if options:
            variables[backends.OPTIONS_VARIABLE] = json.dumps(options)
        return place.run(name, backend, worker, variables)
    except DetError as error:
        print(f"{FAILURE_PREFIX}{'; '.join(str(error).splitlines())}", file=sys.stderr)  # noqa: T201
        return EXIT_DO_NOT_RESTART
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
