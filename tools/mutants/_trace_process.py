"""Coverage of a process by test.

A line of a ``.pth`` file imports this module in every process of a traced environment. The data of a process belongs to
the test that ``PYTEST_CURRENT_TEST`` names when the process ends, because a fork of a prepared server gets its
environment late. Processes that are killed leave no data.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import uuid
from pathlib import Path

ENVIRONMENT = Path(__file__).resolve().parents[2] / ".cache" / "mutants"
TRACES = ENVIRONMENT / "traces"
"""Directory of the data. Processes are traced while it exists."""

_running = None


def start_tracing() -> None:
    """Trace this process, and its forks separately."""
    global _running
    from coverage import Coverage

    tree = ENVIRONMENT / "tree"
    _running = Coverage(
        data_file=str(TRACES / uuid.uuid4().hex),
        config_file=False,
        include=[f"{tree}/det_core/*", f"{tree}/plugins/*/det*/*"],
        messages=False,
    )
    _running._warn_no_data = _running._warn_unimported_source = False
    _running.start()


def save_traces() -> None:
    """Write the data, once."""
    global _running
    coverage, _running = _running, None
    if coverage is None:
        return
    coverage.stop()
    coverage.save()
    test = current_test()
    file = Path(coverage.config.data_file)
    if test and file.exists():
        with contextlib.closing(sqlite3.connect(file)) as connection, connection:
            connection.execute("UPDATE OR IGNORE context SET context = ? WHERE context = ''", [test])


def current_test() -> str:
    """Return the name of the test that started this process, or ``""`` outside of tests."""
    return os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]


def switch_test(test: str) -> None:
    """Attribute what follows in this process to a test."""
    if _running is not None:
        _running.switch_context(test)


def _start_again() -> None:
    global _running
    if _running is not None:
        _running.stop()
        _running = None
        start_tracing()


def _saving_before(name: str) -> None:
    original = getattr(os, name)

    def replacement(*arguments: object) -> object:
        save_traces()
        return original(*arguments)

    setattr(os, name, replacement)


if TRACES.is_dir() and Path(sys.prefix) == ENVIRONMENT / "venv":
    import atexit

    for _name in ("_exit", "execv", "execve"):
        _saving_before(_name)
    os.register_at_fork(after_in_child=_start_again)
    atexit.register(save_traces)
    start_tracing()
