"""Agent of one node, which starts the command, forwards its output, and requests its preemption.

Launchers use it for the processes of this machine. Engines start it on their nodes as a program
(``python -m det_cluster.agent_program``).
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from det_core.core import agent_channel
from det_core.core._cluster_info import INFO_DIR
from det_core.core.failure_notes import DIED, FAILURE_PREFIX
from det_core.disk_errors import explain_disk_error
from det_core.errors import DetError, LaunchDelayed, LaunchError
from det_core.interfaces.launcher import PYTHON, Allocation, Cause, Exit, LaunchRequest, Phase, Status
from det_core.launch._guarded_command import GuardedCommand, SpawnedCommand
from det_core.launch._stream_threads import StreamThread, end_streams
from det_core.launch._worker_connections import WorkerConnections
from det_core.launch.context_archive import unpack_context_dir
from det_core.launch.network import LOOPBACK
from det_core.launch.worker_environment import (
    find_backend,
    find_oversized_variables,
    make_info_variables,
    make_lasting_environment,
)
from det_core.processes import count_memory_kills
from det_core.scratch import scratch_directory
from det_core.tracking.secret_files import SECRETS_DIRECTORY_VARIABLE

if TYPE_CHECKING:
    from det_core.launch._prepared_command import PreparedCommand

_WORKER = "det_core.launch.worker"
"""Module of the workers of trial classes."""
_CLOSE_SECONDS = 10.0
"""Seconds to wait for the end of the output, which another process may keep for longer."""
_SOCKET_NAME = "agent.sock"
_TEMPORARY = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT)
"""Error numbers of temporarily exhausted resources."""
_KILL_MEMORY = 60.0
"""Seconds for which a kill for lack of memory may be the cause of the end. Twice that at most."""
_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
"""Exit codes of a command that was killed, by itself or below a shell."""
_OUT_OF_MEMORY = (
    "the kernel killed a process; lower the batch size or the number of data workers, or give the trial more memory"
)
_LONGEST_PARENT = 60
"""Maximum length of the parent directory in bytes, so that the path of the agent's socket is short enough."""


@dataclass(frozen=True, kw_only=True)
class AllocatedNode:
    """A node of a launch, with the slots that the launch has there.

    Args:
        name: name of the node, which workers see as ``agent_id``.
        slot_ids: slots of this node that the launch may use.
        hosts: addresses of all nodes, starting with that of the chief.
        node: index of this node.
        slot_counts: numbers of slots of all nodes.
        port: port that is free on the chief's node, as is the next one. Needed if there are several nodes.
    """

    name: str
    slot_ids: Sequence[int]
    hosts: Sequence[str] = (LOOPBACK,)
    node: int = 0
    slot_counts: Sequence[int] = ()
    port: int | None = None


class NodeAgent(Allocation):
    """Processes of one launch on this node. A guard makes sure that none of them is left behind.

    Args:
        request: the launch request. Its ``code`` is unpacked, and its ``secrets`` are written to files, which are gone
            when the agent is closed.
        node: this node.
        env: variables to add to the environment of the processes. Those of the request replace them.
        inherit: file descriptors that all processes keep open, such as that of a lock.
        parent: directory in which the code is unpacked. By default the one for temporary files.
        prepare: modules that workers of a trial class need not import, beside those of det, its framework and its
            backend, because a prepared process has imported them. None starts them as new processes, as all others.

    Raises:
        LaunchDelayed: the processes could not be started, because a resource such as memory is exhausted.
        LaunchError: the processes could not be started.
    """

    def __init__(
        self,
        request: LaunchRequest,
        node: AllocatedNode,
        *,
        env: Mapping[str, str] | None = None,
        inherit: Sequence[int] = (),
        parent: Path | None = None,
        prepare: Sequence[str] | None = None,
    ) -> None:
        self._log = request.log
        self._killed = False
        self._died = False
        self._kills_before = self._kills = count_memory_kills()
        self._counted_at = time.monotonic()
        with explain_start_errors(repr(request.argv[0])), ExitStack() as undo:
            code = undo.enter_context(scratch_directory("context", parent))
            unpack_context_dir(request.code, code)
            self._directory = undo.enter_context(scratch_directory("agent", _short_parent()))
            info = _described(request, node)
            _write_files({name: json.dumps(content) for name, content in info.items()}, self._directory)
            secrets = self._directory / "secrets"
            secrets.mkdir(0o700)
            _write_files(request.secrets, secrets)
            environment = self._environment(info, {**(env or {}), **request.env})
            self._workers = WorkerConnections(self._directory / _SOCKET_NAME, request.call)
            undo.callback(self._workers.close)
            self._readers: list[StreamThread] = []
            undo.callback(lambda: end_streams(self._readers, _CLOSE_SECONDS))
            with ExitStack() as started:
                outputs = []
                for name in ("stdout", "stderr"):
                    source, output = os.pipe()
                    started.callback(os.close, output)
                    outputs.append(output)
                    stream = os.fdopen(source, "rb", buffering=0)
                    self._readers.append(StreamThread(f"det-{name}", stream, partial(self._log_lines, name)))
                keep = {"cwd": code, "inherit": inherit, "outputs": outputs}
                self._processes = self._start_processes(request, environment, prepare, **keep)
                undo.callback(self._processes.close)
            for reader in self._readers:
                reader.start()
            self._running = undo.pop_all()

    def wait(self, timeout: float) -> Exit | None:
        with explain_start_errors("the worker"):
            code = self._processes.wait(timeout)
        if code is None:
            self._count_memory_kills()
            return None
        killed = count_memory_kills() - self._kills_before
        if killed > 0 and (self._died or code in _KILLED) and not self._killed:
            return Exit(code=code, cause=Cause.OUT_OF_MEMORY, message=_OUT_OF_MEMORY)
        return Exit(code=code)

    def status(self) -> Status:
        return Status(phase=Phase.RUNNING)

    def preempt(self) -> None:
        self._workers.preempt()

    def kill(self) -> None:
        self._killed = True
        self._processes.kill()

    def disconnect(self) -> None:
        """Tell the workers that the runner is gone. They save a checkpoint and end within 8 s."""
        self._workers.disconnect()

    def close(self) -> None:
        """End the remaining processes, deliver the last log lines, and remove files and sockets."""
        self._running.close()

    def _start_processes(
        self, request: LaunchRequest, env: Mapping[str, str], prepare: Sequence[str] | None, **keep: Any
    ) -> GuardedCommand | PreparedCommand:
        if prepare is None or (request.argv[0], request.argv[-1]) != (PYTHON, _WORKER):
            return SpawnedCommand([sys.executable if word == PYTHON else word for word in request.argv], env, **keep)
        from det_core.launch._prepared_command import PreparedCommand, find_worker_modules  # others need not import it

        backend = find_backend(request.argv)
        modules = find_worker_modules(request.info["trial.json"]["config"]["entrypoint"], keep["cwd"], backend)
        keep = {**keep, "starts_others": backend is not None, "explain": partial(self._log, None, "det")}
        return PreparedCommand([*modules, *prepare], request.argv[2:], env, **keep)

    def _count_memory_kills(self) -> None:
        """Forget kills of long ago, which may have been those of other trials."""
        now = time.monotonic()
        if now > self._counted_at + _KILL_MEMORY:
            self._kills_before, self._kills, self._counted_at = self._kills, count_memory_kills(), now

    def _environment(self, info: Mapping[str, Mapping[str, Any]], env: Mapping[str, str]) -> dict[str, str]:
        described = make_info_variables(info)
        for name in find_oversized_variables(described):
            del described[name]
            self._log(None, "det", f"{name} is too long for an environment variable; use det.get_cluster_info()")
        return {
            **make_lasting_environment(env),
            **described,
            "DET_CHIEF_IP": info["rendezvous.json"]["container_addrs"][0],
            INFO_DIR: str(self._directory),
            SECRETS_DIRECTORY_VARIABLE: str(self._directory / "secrets"),
            agent_channel.SOCKET: str(self._directory / _SOCKET_NAME),
        }

    def _log_lines(self, name: str, lines: Iterable[tuple[int | None, str]]) -> None:
        for rank, text in lines:
            self._died |= text.startswith(FAILURE_PREFIX) and DIED in text
            self._log(rank, name, text)


@contextmanager
def explain_start_errors(what: str) -> Iterator[None]:
    """Raise a `LaunchDelayed` or `LaunchError` for an error of the block, which starts ``what``."""
    try:
        yield
    except LaunchError:
        raise
    except (DetError, OSError, MemoryError) as error:
        cause = error.__cause__ if isinstance(error, DetError) else error
        lacks = isinstance(cause, MemoryError) or (isinstance(cause, OSError) and cause.errno in _TEMPORARY)
        kind = LaunchDelayed if lacks else LaunchError
        reason = str(explain_disk_error(error) or error) or "there is not enough memory"
        raise kind(f"cannot start {what}: {reason}") from error


def _described(request: LaunchRequest, node: AllocatedNode) -> dict[str, Mapping[str, Any]]:
    """Return the info files with what only the launcher knows."""
    rendezvous = {
        "container_addrs": list(node.hosts),
        "container_rank": node.node,
        "container_slot_counts": list(node.slot_counts or [len(node.slot_ids)]),
        "port": node.port,
    }
    cluster = {**request.info["cluster.json"], "agent_id": node.name, "slot_ids": list(node.slot_ids)}
    return {**request.info, "cluster.json": cluster, "rendezvous.json": rendezvous}


def _write_files(contents: Mapping[str, str], directory: Path) -> None:
    """Write files that only this user can read."""
    for name, content in contents.items():
        path = directory / name
        path.touch(0o600)
        path.write_text(content, encoding="utf-8")


def _short_parent() -> Path:
    """Return a directory whose path leaves room for a socket's name (unix(7): 108 bytes in all, macOS 104)."""
    parent = tempfile.gettempdir()
    return Path(parent if len(os.fsencode(parent)) <= _LONGEST_PARENT else "/tmp")  # noqa: S108
