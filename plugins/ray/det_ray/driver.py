"""Ray driver of one launch as a program, ``python -m det_ray.driver run ADDRESS KEY``, which `det_ray` starts.

It creates a placement group and an actor with a node agent for each bundle. Its stdin reaches all agents, and each line
of its stdout starts with the index of the agent that wrote it, as with ``srun --label``. Lines without an index are
reports for the launcher (`det_ray._reports`). The group lasts as long as this process.

It is a process of its own because Ray ends a driver that has lost its cluster, and the runner must survive that.
``python -m det_ray.driver describe ADDRESS`` prints the resources of the cluster, in all and those that are free, and
``clean ADDRESS PREFIX`` removes the groups whose names begin with a prefix.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and not getattr(sys.flags, "safe_path", sys.flags.isolated):
    sys.path.pop(0)  # -m imports modules from the present directory, and that of the user may contain a queue.py

import argparse
import json
import logging
import os
import queue
import signal
import socket
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

import ray
from ray.exceptions import OutOfMemoryError, RayActorError, RayError
from ray.util.placement_group import (
    PlacementGroup,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from det_core.interfaces.launcher import Cause
from det_ray._config import CLIENT
from det_ray._node_actor import CALLS_AT_ONCE, STREAMS, NodeActor
from det_ray._reports import Report

JOB_VARIABLE = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Environment variable of processes of a submitted job, which Ray reads."""
_NAMESPACE = "det"
"""Ray namespace in which the names of placement groups are unique."""
_CONNECT_SECONDS = 5.0
_POLL_SECONDS = 0.5
_EXPLAIN_EVERY = 5.0
"""Seconds between two explanations of a wait, for which the head node is asked."""
_END_SECONDS = 15.0
"""Seconds that the agents have to end after the end of stdin. They need up to 10."""
_LOST_SECONDS = 10.0
"""Seconds that the agents of a removed group have to end their workers."""
_CHUNK = 1 << 20
_CALL_BYTES = 8 << 20
"""Size above which no more is added to what is written by one call of an actor."""
_OPTIONS = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
"""Names of options of actors by resources. Others are in the option ``resources``."""
_REMOVED = "placement group was removed"
"""Part of what Ray says about the death of an actor whose group somebody has removed."""
_LONGEST = 400
"""Maximum length of an explanation in characters."""
_IDENTITY = ("class_name:", "actor_id:", "namespace:", "pid:", "name:")
"""Beginnings of lines of such errors that do not help users."""


class _Driver:
    """Placement group and actors of one launch."""

    def __init__(self, key: str, nodes: int, bundle: Mapping[str, float]) -> None:
        self._key, self._nodes, self._bundle = key, nodes, bundle
        self._job = ""
        self._output = threading.Lock()
        self._actors: list[Any] = []
        self._chunks: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def run(self, address: str) -> None:
        """Run the launch to its end."""
        threading.Thread(target=self._read_input, daemon=True).start()
        if problem := connect(address):
            self._fail(Cause.NOT_STARTED, problem)
        self._job = ray.get_runtime_context().get_job_id()
        group = self._wait_for_group()
        self._report(placed=True)
        self._actors = [self._create_actor(group, index) for index in range(self._nodes)]
        cpus = self._bundle.get("CPU", 0.0)
        self._get([actor.start.remote(index, cpus) for index, actor in enumerate(self._actors)])
        threads = [
            threading.Thread(target=self._copy_output, args=(index, actor, stream), daemon=True)
            for index, actor in enumerate(self._actors)
            for stream in STREAMS
        ]
        for thread in threads:
            thread.start()
        threading.Thread(target=self._copy_input, daemon=True).start()
        for thread in threads:
            thread.join()

    def _wait_for_group(self) -> PlacementGroup:
        """Create the group as soon as that of an earlier launch is gone, and wait until it has its nodes."""
        group: PlacementGroup | None = None
        explain_at = 0.0
        strategy = "STRICT_SPREAD" if self._nodes > 1 else "STRICT_PACK"
        while group is None:
            try:
                group = placement_group([dict(self._bundle)] * self._nodes, strategy, name=self._key)
            except RayError as error:
                if "already exists" not in str(error):
                    raise
                self._report(message="processes of its earlier run are still alive")
                time.sleep(_POLL_SECONDS)
        while not group.wait(_POLL_SECONDS):
            if placement_group_table(group)["state"] == "REMOVED":
                self._fail(Cause.CANCELED, "its placement group was removed")
            if time.monotonic() >= explain_at:
                explain_at = time.monotonic() + _EXPLAIN_EVERY
                self._report(message=explain_wait(ray.nodes(), ray.available_resources(), self._bundle, self._nodes))
        return group

    def _create_actor(self, group: PlacementGroup, index: int) -> Any:
        named = {option: self._bundle.get(name, 0) for name, option in _OPTIONS.items() if name in self._bundle}
        others = {name: amount for name, amount in self._bundle.items() if name not in _OPTIONS}
        options = {"num_cpus": 0, **named, "resources": others, "max_concurrency": CALLS_AT_ONCE}
        place = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
        return ray.remote(NodeActor).options(scheduling_strategy=place, **options).remote()

    def _read_input(self) -> None:
        """Read stdin from the start, because its end also ends a launch that waits."""
        while chunk := os.read(sys.stdin.fileno(), _CHUNK):
            self._chunks.put(chunk)
        if not self._actors:
            os._exit(1)
        self._chunks.put(b"")
        time.sleep(_END_SECONDS)
        os._exit(1)

    def _input(self) -> Iterator[bytes]:
        """Yield what was read from stdin, in large pieces, because each is a call of all actors."""
        while chunk := self._chunks.get():
            parts, size = [chunk], len(chunk)
            while chunk and size < _CALL_BYTES and not self._chunks.empty():
                chunk = self._chunks.get()
                parts.append(chunk)
                size += len(chunk)
            yield b"".join(parts)
            if not chunk:
                return

    def _copy_input(self) -> None:
        for content in self._input():
            shared = ray.put(content)
            self._get([actor.write.remote(shared) for actor in self._actors])
        self._get([actor.end_input.remote() for actor in self._actors])

    def _copy_output(self, index: int, actor: Any, stream: str) -> None:
        rest = b""
        label = b"%d: " % index
        for reference in self._received(actor.read.options(num_returns="streaming").remote(stream)):
            *lines, rest = (rest + self._get(reference)).split(b"\n")
            if stream == "stdout":
                self._write(b"".join(label + line + b"\n" for line in lines))
            else:
                sys.stderr.buffer.write(b"".join(line + b"\n" for line in lines))
                sys.stderr.flush()

    def _received(self, references: Iterable[Any]) -> Iterable[Any]:
        iterator = iter(references)
        while (reference := self._call(lambda: next(iterator, None))) is not None:
            yield reference

    def _get(self, references: Any) -> Any:
        return self._call(lambda: ray.get(references))

    def _call(self, function: Callable[[], Any]) -> Any:
        """Call a function of Ray. End the launch with the cause if Ray raises an error."""
        try:
            return function()
        except RayError as error:
            self._fail(*explain_death(error))

    def _report(self, **fields: Any) -> None:
        self._write(Report(job=self._job, **fields).format_line().encode() + b"\n")

    def _write(self, content: bytes) -> None:
        with self._output, suppress(BrokenPipeError):
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()

    def _fail(self, cause: Cause, message: str) -> NoReturn:
        """Report an end and end this process, on which Ray ends the actors, and the agents their workers."""
        self._report(placed=bool(self._actors), cause=cause.value, message=message)
        os._exit(1)


def connect(address: str) -> str:
    """Connect to the cluster, and return the problem, or "" if there is none."""
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS") or address
    if address.startswith(CLIENT):
        return (
            f"RAY_ADDRESS is {address}, which leads through the Ray client; use the port of the cluster itself (6379)"
        )
    host, _, port = address.rpartition(":")
    try:
        if host and port.isdecimal():
            socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
        keep_directory_here()
        ray.init(address=address, namespace=_NAMESPACE, log_to_driver=False, logging_level=logging.CRITICAL)
    except OSError as error:
        return f"no Ray cluster at {address} ({error}); start one with: ray start --head, or change launcher.address"
    except Exception as error:  # noqa: BLE001  (Ray raises various types)
        return f"cannot connect to Ray at {address}: {' '.join(str(error).split())}"
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # Ray's own handler waits for calls
    return ""


def remove_groups(prefix: str) -> None:
    """Remove the placement groups whose names begin with a prefix.

    A group ends with its driver, which ends soon after its runner. It is only removed if the driver is frozen. Ray then
    ends the actors, and the agents their workers, while the next launches wait for the name.
    """
    deadline = time.monotonic() + _END_SECONDS + _CONNECT_SECONDS
    while (found := _find_groups(prefix)) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    for name in found:
        with suppress(ValueError):  # it has just ended
            remove_placement_group(get_placement_group(name))
    if found:
        time.sleep(_LOST_SECONDS)


def _find_groups(prefix: str) -> list[str]:
    groups = placement_group_table().values()
    return [one["name"] for one in groups if one["name"].startswith(prefix) and one["state"] != "REMOVED"]


def keep_directory_here() -> None:
    """Keep the directory of a submitted job, which contains the config with its secrets, from the nodes of trials."""
    if job := json.loads(os.environ.get(JOB_VARIABLE, "null")):
        job.get("runtime_env", {}).pop("working_dir", None)
        os.environ[JOB_VARIABLE] = json.dumps(job)


def explain_wait(
    nodes: Sequence[Mapping[str, Any]], free: Mapping[str, float], bundle: Mapping[str, float], count: int
) -> str:
    """Return why a placement group waits.

    Args:
        nodes: nodes of the cluster, as `ray.nodes` returns them.
        free: free resources of the cluster.
        bundle: resources of each node of the group.
        count: number of nodes of the group.
    """
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    large = [node for node in alive if all(node.get(name, 0) >= amount for name, amount in bundle.items())]
    needs = f"it needs {_amounts(bundle)}" + (f" on each of {count} nodes" if count > 1 else " on one node")
    if len(large) < count:
        has = f"only {len(large)} of the {len(alive)} nodes of the cluster have that" if large else "no node has that"
        return f"{needs}, but {has}; it waits until an autoscaler or you add nodes"
    return f"{needs}; free in the cluster: {_amounts({name: free.get(name, 0) for name in bundle})}"


def explain_death(error: RayError) -> tuple[Cause, str]:
    """Return the cause and the explanation of the death of an actor."""
    if isinstance(error, OutOfMemoryError):
        return Cause.OUT_OF_MEMORY, str(error).partition("\n")[0]
    text = str(error)
    lines = [line.strip() for line in text.splitlines()[1:]]
    said = " ".join(line for line in lines if line and not line.startswith(_IDENTITY)) or text
    cause = Cause.CANCELED if _REMOVED in text else Cause.NODE_LOST
    if isinstance(error, RayActorError) and error.preempted:
        cause = Cause.PREEMPTED
    return cause, textwrap.shorten(said, _LONGEST)


def _amounts(resources: Mapping[str, float]) -> str:
    return " and ".join(f"{amount:g} {name}" for name, amount in resources.items())


def _keep_stderr() -> None:
    """Keep stderr to this program. Ray's libraries write warnings to it, and errors are raised."""
    sys.stderr = os.fdopen(os.dup(sys.stderr.fileno()), "w", buffering=1, encoding="utf-8")
    hidden = os.open(os.devnull, os.O_WRONLY)
    os.dup2(hidden, 2)
    os.close(hidden)


def _crash(crashed: threading.ExceptHookArgs) -> None:
    """End this process after an error in a thread, instead of a part of a launch."""
    threading.__excepthook__(crashed)
    os._exit(1)


def main(argv: Sequence[str]) -> int:
    """Run the program. Return the exit code."""
    parser = argparse.ArgumentParser("python -m det_ray.driver", description="Driver of one launch. det starts it.")
    parser.add_argument("action", choices=("run", "describe", "clean"))
    parser.add_argument("address")
    parser.add_argument("key", nargs="?", default="")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--resources", type=json.loads, default={})
    args = parser.parse_args(argv)
    _keep_stderr()
    if args.action != "run":
        if problem := connect(args.address):
            sys.exit(problem)
        if args.action == "clean":
            remove_groups(args.key)
        else:
            print(json.dumps({"all": ray.cluster_resources(), "free": ray.available_resources()}))  # noqa: T201
        return 0
    threading.excepthook = _crash
    _Driver(args.key, args.nodes, args.resources).run(args.address)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
