"""The process of a user's search method: ``python -m det_core.search._custom_process FD module:Class``.

Every line that comes is the name of a method and its arguments, every line that goes what it returned or raised.
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

from det_core.interfaces.search_method import Action, SearchMethod, plain


def main(descriptor: int, target: str) -> None:
    """Answer until the parent is gone."""
    stream = socket.socket(fileno=descriptor).makefile("rwb")
    questions: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(stream, questions.put), daemon=True).start()
    answer = _Answers(target)
    while True:
        name, *arguments = json.loads(questions.get())
        try:
            reply = {"result": answer(name, arguments)}
            line = json.dumps(reply)
        except Exception:  # noqa: BLE001  (a stranger's code; the parent raises it)
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
            return None
        if name == "progress":
            return self._method.progress({int(key): length for key, length in arguments[0].items()})
        result = getattr(self._method, name)(*arguments)
        return list(result) if name == "outline" else list(map(plain, _actions(result, name)))


def _load(target: str) -> Callable[..., SearchMethod]:
    module, _, path = target.partition(":")
    found: Any = importlib.import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    if not (isinstance(found, type) and issubclass(found, SearchMethod)):
        raise TypeError(f"searcher.method {target} is {found!r}; expected a class of det_core's SearchMethod")
    return found


def _actions(result: Any, name: str) -> Iterable[Action]:
    actions = list(result) if isinstance(result, Iterable) else [result]
    for action in actions:
        if not isinstance(action, Action):
            raise TypeError(f"{name} returned {action!r}; expected a list of Create, Train and Close")
    return actions


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
