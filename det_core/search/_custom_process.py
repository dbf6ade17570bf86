"""Process of a user's search method, ``python -m det_core.search._custom_process FD module:Class``.

Each line that it reads is the name of a method with its arguments as JSON. Each line that it writes is the result or
the error of that call.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from typing import IO, Any

from det_core.interfaces.search_method import Action, SearchMethod, action_from_json, action_to_json


def main(descriptor: int, target: str) -> None:
    """Answer calls until the parent is gone.

    Args:
        descriptor: file descriptor of the socket to the parent.
        target: the search method as module:Class.
    """
    stream = socket.socket(fileno=descriptor).makefile("rwb")
    questions: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(stream, questions.put), daemon=True).start()
    answer = _Answers(target)
    while True:
        name, *arguments = json.loads(questions.get())
        try:
            reply = {"result": answer(name, arguments)}
            line = json.dumps(reply)
        except Exception:  # noqa: BLE001  (code of the user, whose error the parent raises)
            line = json.dumps({"error": traceback.format_exc()})
        stream.write(line.encode() + b"\n")
        stream.flush()


def _listen(stream: IO[bytes], put: Callable[[bytes], None]) -> None:
    for line in stream:
        put(line)
    os._exit(0)  # the parent is gone, whatever the method is doing


class _Answers:
    def __init__(self, target: str) -> None:
        self._target = target
        self._method: SearchMethod | None = None

    def __call__(self, name: str, arguments: list[Any]) -> Any:
        if self._method is None:
            self._method = _load(self._target)(*arguments)
            return bool(self._method.takes_reports)
        if name == "progress":
            return self._method.progress({int(key): length for key, length in arguments[0].items()})
        if name == "replay":
            event, of_event, actions = arguments
            arguments = [event, of_event, [action_from_json(action) for action in actions]]
        result = getattr(self._method, name)(*arguments)
        return list(result) if name == "outline" else list(map(action_to_json, _actions(result, name)))


def _load(target: str) -> Callable[..., SearchMethod]:
    module, _, path = target.partition(":")
    found: Any = importlib.import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    if not (isinstance(found, type) and issubclass(found, SearchMethod)):
        raise TypeError(f"searcher.method {target} is {found!r}; expected a subclass of det_core's SearchMethod")
    return found


def _actions(result: Any, name: str) -> Iterable[Action]:
    actions = list(result) if isinstance(result, Iterable) else [result]
    for action in actions:
        if not isinstance(action, Action):
            raise TypeError(f"{name} returned {action!r}; expected a list of Create, Train and Close")
    return actions


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
