"""Calls of a user's search method as its process answers them, here in a thread."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from det_core.search import _custom_process

from .test_custom import METHOD

Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    """Return a function that sends a call and returns the answer, as in ``ask("on_exit", 0, "error")``.

    The end of the connection ends the process.
    """
    (tmp_path / "mine.py").write_text(METHOD)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    ended = threading.Event()
    monkeypatch.setattr(os, "_exit", lambda code: ended.set())
    ours, theirs = socket.socketpair()
    threading.Thread(target=_custom_process.main, args=(theirs.detach(), "mine:Doubling"), daemon=True).start()
    with ours, ours.makefile("rwb") as stream:

        def ask(*call: Any) -> dict[str, Any]:
            stream.write(json.dumps(call).encode() + b"\n")
            stream.flush()
            answer: dict[str, Any] = json.loads(stream.readline())
            return answer

        yield ask
    ours.close()
    assert ended.wait(60)
    monkeypatch.delitem(sys.modules, "mine", raising=False)


def test_each_call_is_answered_with_its_result(ask: Ask) -> None:
    assert ask("open", {"first": 3}, {"depth": {"maxval": 8}}, 5) == {"result": False}
    create, train = ask("start")["result"]
    assert (create[:2], create[2]["depth"], train) == (["Create", 0], 8, ["Train", 0, 3])
    assert ask("on_validation", 0, 3, 0.9) == {"result": [["Close", 0]]}
    assert ask("progress", {"0": 5})["result"] == 0.5  # JSON has no keys that are numbers
    assert ask("outline")["result"] == ["from 3", str(os.getpid())]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("[3]", "on_exit returned 3; expected a list of Create, Train and Close"),
        ("None", "on_exit returned None"),
        ("[Create(1, {'x': object()})]", "not JSON serializable"),
    ],
)
def test_an_error_is_answered_with_its_traceback(ask: Ask, body: str, message: str) -> None:
    ask("open", {"first": 3}, {"depth": {"maxval": 8}}, 5)
    error = ask("on_exit", 0, body)["error"]
    assert error.startswith("Traceback") and message in error
    assert ask("on_exit", 0, "[Close(0)]")["result"]  # the process goes on


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ("random:Random", "expected a subclass of det_core's SearchMethod"),
        ("random:no.such", "has no attribute 'no'"),
        ("no_such_module:A", "No module named"),
    ],
)
def test_only_search_methods_are_loaded(target: str, error: str) -> None:
    with pytest.raises((TypeError, AttributeError, ImportError), match=error):
        _custom_process._load(target)
