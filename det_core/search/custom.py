"""A search method of the user's own, ``searcher: {name: custom, method: "module:Class"}``, in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from pydantic_core import to_jsonable_python

from det_core.config import Block, Unit
from det_core.errors import DetError
from det_core.interfaces.search_method import Action, Close, Create, SearchMethod, Train

PATIENCE = 60.0
"""Seconds in which the method has to answer, or to be imported and constructed."""
_ACTIONS: dict[str, Callable[..., Action]] = {action.__name__: action for action in (Create, Train, Close)}


class CustomConfig(Block):
    method: Annotated[str, Field(pattern=r"^[\w.]+:[\w.]+$")]
    """``module:Class`` in the context directory: a `det_core.interfaces.search_method.SearchMethod`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """What it is constructed with."""
    unit: Unit | None = None
    """Of the lengths that it asks for."""


class CustomSearch(SearchMethod):
    """Passes events to the user's method and actions back; its state is the events so far."""

    def __init__(self, config: CustomConfig, hyperparameters: Mapping[str, Any], seed: int) -> None:
        self._config = config
        self._arguments = (config.options, to_jsonable_python(hyperparameters), seed)
        self._events: list[list[Any]] = []
        self._child: _Child | None = None

    def open(self, context_dir: Path) -> None:
        self._child = _Child(self._config.method, context_dir)
        self._ask("construct", *self._arguments)

    def close(self) -> None:
        if self._child:
            self._child.end()

    def start(self) -> Sequence[Action]:
        return self._event("start")

    def on_validation(self, request_id: int, length: int | None, metric: float) -> Sequence[Action]:
        return self._event("on_validation", request_id, length, metric)

    def on_exit(self, request_id: int, reason: str) -> Sequence[Action]:
        return self._event("on_exit", request_id, reason)

    def progress(self, lengths: Mapping[int, float]) -> float:
        return float(self._ask("progress", dict(lengths)))

    def outline(self) -> Sequence[str]:
        return [str(line) for line in self._ask("outline")]

    def state(self) -> Any:
        return list(self._events)

    def restore(self, state: Any) -> None:
        for name, *arguments in state:
            self._event(name, *arguments)

    def _event(self, name: str, *arguments: Any) -> Sequence[Action]:
        actions = [_ACTIONS[kind](*values) for kind, *values in self._ask(name, *arguments)]
        self._events.append([name, *arguments])
        return actions

    def _ask(self, name: str, *arguments: Any) -> Any:
        if self._child is None:
            raise RuntimeError("a search method has to be opened before its first event")
        return self._child.ask(name, *arguments)


class _Child:
    """The process in which the method lives; it ends with this one, whatever ends that."""

    def __init__(self, method: str, context_dir: Path) -> None:
        self._method = method
        ours, theirs = socket.socketpair()
        ours.settimeout(PATIENCE)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "det_core.search._custom_process", str(theirs.fileno()), method],
                cwd=context_dir,  # where -m looks first
                stdin=subprocess.DEVNULL,
                stdout=2,  # what it prints must not be taken for the output of a command
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # a Ctrl-C in the terminal is for the runner, which goes on asking
            )
        self._socket, self._stream = ours, ours.makefile("rwb")

    def ask(self, name: str, *arguments: Any) -> Any:
        """Call a method of it.

        Raises:
            DetError: it raised, which shows its traceback; it took too long, or its process ended.
        """
        try:
            self._stream.write(json.dumps([name, *arguments]).encode() + b"\n")
            self._stream.flush()
            line = self._stream.readline()
        except TimeoutError:
            raise self._problem(f"did not return from {name} within {PATIENCE:g} s") from None
        except OSError:
            line = b""
        if not line:
            raise self._problem(f"ended its process in {name}; it must return or raise")
        answer = json.loads(line)
        if "error" in answer:
            raise self._problem(f"failed in {name}:\n{answer['error'].rstrip()}")
        return answer["result"]

    def end(self) -> None:
        """Kill it, with what it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        with suppress(OSError):  # a question that was never taken
            self._stream.close()
        self._socket.close()

    def _problem(self, what: str) -> DetError:
        return DetError(f"the search method {self._method} {what}")
