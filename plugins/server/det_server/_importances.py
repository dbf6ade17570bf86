"""Importances of hyperparameters, which a process computes in the background, one at a time."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import os
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

_log = logging.getLogger("det.server")

_PROGRAM = (sys.executable, "-m", "det_server._importance_program")
SECONDS = 120
"""Maximum number of seconds of a computation. That of 2,000 trials takes 10."""
_KEPT = 200
"""Number of results that are kept, those that were asked for last."""
MAX_ASKED = 16
"""Maximum number of tables in memory, each of which has thousands of values."""


@dataclass(frozen=True)
class Importance:
    """Dependence of the order of trials on each hyperparameter.

    Args:
        explained: share of the differences that can be predicted, at most 1. Without any, it is 0 or negative.
        shares: importance of each hyperparameter, as shares of their sum.
        errors: standard deviations of the shares.
    """

    explained: float
    shares: Sequence[float]
    errors: Sequence[float]


class Pending(str, Enum):
    """Reasons for which there is no result."""

    COMPUTING = "computing"
    """It is being computed, or waits for other computations."""
    FAILED = "failed"
    """It could not be computed. The log of the server says why."""


def can_compute() -> bool:
    """Return whether the library for it is installed."""
    return importlib.util.find_spec("sklearn") is not None


class Importances:
    """Results of computations that have been asked for. Each person waits for one at a time.

    Args:
        program: command that reads a table and writes an `Importance`, as JSON.
    """

    def __init__(self, program: Sequence[str] = _PROGRAM) -> None:
        self._program = program
        self._lock = threading.Lock()
        self._results: OrderedDict[str, Importance | Pending] = OrderedDict()
        self._waiting: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[str] | None = None
        self._closed = False

    def find(
        self, person: str, columns: Sequence[Sequence[float | None]], values: Sequence[float]
    ) -> Importance | Pending:
        """Return the result for some trials, or start its computation.

        Args:
            person: name of who asks.
            columns: values of each hyperparameter by trial, or None where a trial has none.
            values: value of the metric by trial.
        """
        text = json.dumps({"columns": columns, "values": values})
        digest = hashlib.sha256(text.encode()).hexdigest()
        with self._lock:
            if digest in self._results:
                self._results.move_to_end(digest)
                return self._results[digest]
            is_waiting = digest in self._waiting or any(one == person for one, _ in self._waiting.values())
            if not (is_waiting or self._closed or len(self._waiting) >= MAX_ASKED):
                self._waiting[digest] = (person, text)
            if self._waiting and not (self._thread and self._thread.is_alive()):
                self._thread = threading.Thread(target=self._compute_all, name="importance", daemon=True)
                self._thread.start()
            return Pending.COMPUTING

    def close(self) -> None:
        """End a computation that is under way, and start no others."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()

    def _compute_all(self) -> None:
        while True:
            with self._lock:
                if self._closed or not self._waiting:
                    self._waiting.clear()
                    self._thread = None
                    return
                digest, (_, text) = next(iter(self._waiting.items()))
            try:
                result: Importance | Pending = Importance(**json.loads(self._run(text)))
            except (OSError, ValueError, TypeError, RuntimeError, subprocess.SubprocessError) as error:
                _log.warning("the importance of hyperparameters could not be computed: %s", error)
                result = Pending.FAILED
            with self._lock:
                self._results[digest] = result
                del self._waiting[digest]
                while len(self._results) > _KEPT:
                    self._results.popitem(last=False)

    def _run(self, text: str) -> str:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        pipe = subprocess.PIPE
        with self._lock:
            self._process = process = subprocess.Popen(  # modules of the present directory are not imported
                self._program, stdin=pipe, stdout=pipe, stderr=pipe, encoding="utf-8", env=environment, cwd="/"
            )
            if self._closed:
                process.kill()
        with process:
            try:
                answer, said = process.communicate(text, timeout=SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        if process.returncode:
            raise subprocess.SubprocessError(f"exit code {process.returncode}: {said.strip()[-1000:]}")
        return answer
