"""Workers of one node, from their start by the backend to the end of the last one."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from det_core.core import failure_notes
from det_core.errors import LaunchError
from det_core.extras import explain_missing_extra, has_extra
from det_core.interfaces.backend import Backend, NodePlacement
from det_core.launch import backends
from det_core.launch._guarded_command import GuardedCommand
from det_core.launch.network import reserve_free_ports
from det_core.launch.output_lines import RANK_TEMPLATE
from det_core.launch.worker_environment import thread_limit_variables
from det_core.launch.worker_processes import start_launcher
from det_core.scratch import scratch_directory

FAILURE_GRACE = 8.0
"""Seconds from the failure of the first worker until the others are killed, unless the backend ends them earlier."""
_TICK = 0.1


@dataclass(frozen=True, kw_only=True)
class Node:
    """One node of a trial, the one on which this process runs.

    Args:
        hosts: addresses of all nodes, starting with that of the chief.
        node: index of this node.
        slots: number of workers on each node.
        port: port that is free on the chief's node, as is the next one. None finds free ports, which requires that
            there is only one node.

    Raises:
        LaunchError: an argument is out of range, several nodes have no common port or key, or this one of several
            nodes lacks the library for TLS.
    """

    hosts: Sequence[str]
    node: int
    slots: int
    port: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.node < len(self.hosts):
            raise LaunchError(
                f"the index of the node is {self.node}; expected an index into {', '.join(self.hosts)}, from 0"
            )
        if self.slots < 1:
            raise LaunchError(f"the number of slots is {self.slots}; expected 1 or more on each node")
        if self.port is not None and not 0 < self.port < (1 << 16) - 1:
            raise LaunchError(f"the port is {self.port}; expected 1 to 65534")
        if len(self.hosts) > 1 and self.port is None:
            raise LaunchError(
                "several nodes must agree on a port; give the same --port P on each, free on the first node"
            )
        if len(self.hosts) > 1 and "DET_COMM_KEY" not in os.environ:
            raise LaunchError(
                "several nodes must share a secret, so that no stranger joins; set DET_COMM_KEY to the same 32 or "
                "more random characters on each node, for example to the output of `openssl rand -hex 32`"
            )
        if len(self.hosts) > 1 and not has_extra("tls"):
            raise LaunchError(explain_missing_extra("tls"))

    def run(self, name: str, backend: Backend, worker: Sequence[str], env: Mapping[str, str]) -> int:
        """Start the workers and wait for their end.

        If a worker that runs `det_core.launch.worker` fails or dies, all workers end within 10 s. If another worker
        does, they end as soon as the backend's launcher notices. All workers end with this process.

        Args:
            name: name of the backend.
            backend: the backend.
            worker: command of each worker.
            env: additional environment variables of the workers.

        Returns:
            The exit code, 0 if all workers succeeded. If a worker has left a failure note, it is the code of that
            worker, whose note is printed.

        Raises:
            LaunchError: the workers cannot be started.
        """
        with scratch_directory("node") as scratch:
            directory, notes = scratch / "backend", scratch / "failures"
            directory.mkdir()
            notes.mkdir()
            with self._ports() as (port, meeting):
                place = NodePlacement(
                    hosts=self.hosts, node=self.node, slots=self.slots, port=port, directory=directory
                )
                start = backend.start(place, worker)
            environment = {
                **self._environment(meeting),
                failure_notes.NOTES_VARIABLE: str(notes),
                backends.BACKEND_VARIABLE: name,
            }
            command = start_launcher(start.argv, {**os.environ, **environment, **env, **start.env})
            with closing(command):
                code = _wait(command, notes)
            return _report_failure(code, notes)

    @contextmanager
    def _ports(self) -> Iterator[tuple[int, int]]:
        if self.port is not None:
            yield self.port, self.port + 1
            return
        with reserve_free_ports(2) as (port, meeting):
            yield port, meeting

    def _environment(self, meeting: int) -> dict[str, str]:
        """Return the environment variables that the workers of all backends need."""
        return {
            backends.CHIEF_VARIABLE: self.hosts[0],
            backends.PORT_VARIABLE: str(meeting),
            "DET_COMM_KEY": os.environ.get("DET_COMM_KEY") or secrets.token_hex(32),
            **thread_limit_variables(self.slots),
            "PYTHONUNBUFFERED": "1",
            "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": RANK_TEMPLATE,
        }


def _wait(command: GuardedCommand, notes: Path) -> int:
    kill_at: float | None = None
    while (code := command.wait(_TICK)) is None:
        if kill_at is None and failure_notes.poll_worker_failures(notes):
            kill_at = time.monotonic() + FAILURE_GRACE
        if kill_at and time.monotonic() > kill_at:
            command.kill()
    return code


def _report_failure(code: int, notes: Path) -> int:
    failure_notes.poll_worker_failures(notes)
    failure = failure_notes.read_first_failure(notes)
    if failure is None:
        return code if code >= 0 else 128 - code
    print(f"{failure_notes.FAILURE_PREFIX}{failure}", file=sys.stderr, flush=True)  # noqa: T201
    return failure.code
