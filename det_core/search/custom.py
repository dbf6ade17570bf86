"""Search method of the user, configured as ``searcher.method``, which runs in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from pydantic_core import to_jsonable_python

from det_core.config import Block, Unit
from det_core.errors import DetError
from det_core.interfaces.search_method import Action, SearchMethod, action_from_json, action_to_json

CALL_TIMEOUT = 60.0
"""Time limit in seconds of each call, and of the import and construction of the method."""


class CustomConfig(Block):
    """Options of a custom search."""

    method: Annotated[str, Field(pattern=r"^[\w.]+:[\w.]+$")] = Field(examples=["until_good:UntilGood"])
    """``module:Class`` in the context directory, a subclass of `det_core.interfaces.search_method.SearchMethod`."""
    options: dict[str, Any] = Field(default_factory=dict, examples=[{"good": 0.5, "most": 20}])
    """First argument of the constructor of that class."""
    unit: Unit | None = None
    """Unit of the lengths that the method uses."""


class CustomSearch(SearchMethod):
    """Proxy of the user's method, which runs in a child process. It has no snapshots, so all events are replayed."""

    def __init__(self, config: CustomConfig, hyperparameters: Mapping[str, Any], seed: int) -> None:
        self._config = config
        self._arguments = (config.options, to_jsonable_python(hyperparameters), seed)
        self._child: _Child | None = None

    def open(self, context_dir: Path) -> None:
        self._child = _Child(self._config.method, context_dir)
        self.takes_reports = self._ask("construct", *self._arguments)

    def close(self) -> None:
        if self._child:
            self._child.end()

    def start(self) -> Sequence[Action]:
        return self._event("start")

    def on_validation(self, request_id: int, length: int | None, metric: float) -> Sequence[Action]:
        return self._event("on_validation", request_id, length, metric)

    def on_report(self, request_id: int, batches: int, metrics: Mapping[str, Any], time: float) -> Sequence[Action]:
        return self._event("on_report", request_id, batches, metrics, time)

    def on_exit(self, request_id: int, reason: str) -> Sequence[Action]:
        return self._event("on_exit", request_id, reason)

    def progress(self, lengths: Mapping[int, float]) -> float:
        return float(self._ask("progress", dict(lengths)))

    def outline(self) -> Sequence[str]:
        return [str(line) for line in self._ask("outline")]

    def replay(self, event: str, arguments: Sequence[Any], actions: Sequence[Action]) -> Sequence[Action]:
        return self._event("replay", event, arguments, [action_to_json(action) for action in actions])

    def restore(self, state: Any) -> None:
        """Continue from a snapshot of an earlier release, which consists of the events."""
        for name, *arguments in state:
            self._event(name, *arguments)

    def _event(self, name: str, *arguments: Any) -> Sequence[Action]:
        return [action_from_json(action) for action in self._ask(name, *arguments)]

    def _ask(self, name: str, *arguments: Any) -> Any:
        if self._child is None:
            raise RuntimeError("a search method must be opened before its first event")
        return self._child.ask(name, *arguments)


class _Child:
    """Process that runs the method. It ends with this process, whatever the cause."""

    def __init__(self, method: str, context_dir: Path) -> None:
        self._method = method
        ours, theirs = socket.socketpair()
        ours.settimeout(CALL_TIMEOUT)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "det_core.search._custom_process", str(theirs.fileno()), method],
                cwd=context_dir,  # -m imports modules from here
                stdin=subprocess.DEVNULL,
                stdout=2,  # its output must not mix with the output of a det command
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # a Ctrl-C must only reach the runner, which still calls the method
            )
        self._socket, self._stream = ours, ours.makefile("rwb")

    def ask(self, name: str, *arguments: Any) -> Any:
        """Call a method of the search method, and return its result.

        Args:
            name: name of the method.
            arguments: its arguments, JSON-compatible.

        Raises:
            DetError: the call took too long, ended the process, or raised an error, whose traceback is shown.
        """
        try:
            self._stream.write(json.dumps([name, *arguments]).encode() + b"\n")
            self._stream.flush()
            line = self._stream.readline()
        except TimeoutError:
            raise self._problem(f"did not return from {name} within {CALL_TIMEOUT:g} s") from None
        except OSError:
            line = b""
        if not line:
            raise self._problem(f"ended its process in {name}; it must return or raise")
        answer = json.loads(line)
        if "error" in answer:
            raise self._problem(f"failed in {name}:\n{answer['error'].rstrip()}")
        return answer["result"]

    def end(self) -> None:
        """Kill the process and all processes that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        with suppress(OSError):  # a call that was never read
            self._stream.close()
        self._socket.close()

    def _problem(self, what: str) -> DetError:
        return DetError(f"the search method {self._method} {what}")
