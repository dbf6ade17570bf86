"""One start of a script by ``python -m det_core.launch``, with its output and processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from det_core.launch.output_lines import LineDecoder

SECRET = "0123456789abcdef" * 4
MARK = "DET_COMPLIANCE_MARK"
"""Environment variable that identifies all processes of one launch."""
SCRIPT_HEAD = """
import json, os, signal, sys, time
from pathlib import Path
from det_core.launch import backends
OUT = Path(os.environ["OUT"])
workers = backends.connect_workers()
rank = workers.rank
def tell(value):
    partial = OUT / f"{rank}.partial"
    partial.write_text(json.dumps(value))
    partial.rename(OUT / f"{rank}.json")
"""
"""First lines of every script."""
_TICK = 0.02


class LaunchedScript:
    """A running launch. Workers write the values that they ``tell`` to files in ``out``.

    Args:
        directory: directory for the files of all launches.
        name: name of the backend.
        script: Python code that every worker runs after `SCRIPT_HEAD`.
        slots: number of workers.
        options: options of the config's ``distributed`` block.
        env: environment of the launch.
        limit: time limit in seconds.
        arguments: arguments of the script.
        node: ``--hosts``, ``--node`` and ``--port`` if this is one of several nodes.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        script: str,
        *,
        slots: int,
        options: Mapping[str, Any],
        env: Mapping[str, str],
        limit: float,
        arguments: Sequence[str] = (),
        node: Sequence[str] = (),
    ) -> None:
        self.mark, self._limit = uuid.uuid4().hex, limit
        self.directory = directory / self.mark
        self.out = Path(env.get("OUT", self.directory / "out"))
        self.out.mkdir(parents=True, exist_ok=True)
        (self.directory / "code").mkdir(parents=True)
        (self.directory / "code" / "script.py").write_text(SCRIPT_HEAD + script, encoding="utf-8")
        given = [f"--option={key}={json.dumps(value)}" for key, value in options.items()]
        command = ["-m", "det_core.launch", name, f"--slots={slots}", *given, *node, "--", "script.py", *arguments]
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in a shell's background jobs, inherited by children
            signal.signal(signal.SIGINT, signal.default_int_handler)
        with (self.directory / "stdout").open("wb") as stdout, (self.directory / "stderr").open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                cwd=self.directory / "code",
                env={**env, MARK: self.mark, "OUT": str(self.out)},
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )

    def wait(self, seconds: float | None = None) -> int:
        """Wait for the end and return the exit code."""
        try:
            return self.process.wait(self._limit if seconds is None else seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"no end within {seconds or self._limit:g} s; {self.output()}") from None

    def wait_for(self, count: int) -> None:
        """Wait until ``count`` workers have written a value."""
        deadline = time.monotonic() + self._limit
        while len(list(self.out.glob("*.json"))) < count:
            assert self.process.poll() is None, f"the launch ended before {count} workers wrote; {self.output()}"
            assert time.monotonic() < deadline, f"fewer than {count} workers in {self._limit:g} s; {self.output()}"
            time.sleep(_TICK)

    def succeed(self) -> None:
        """Wait for the end, and check that the exit code is 0."""
        code = self.wait()
        assert code == 0, f"exit code {code}; {self.output()}"

    def lines(self, stream: str) -> list[tuple[int | None, str]]:
        """Return (rank, text) of each line on ``stdout`` or ``stderr``, as the agent would log them."""
        split = LineDecoder()
        content = (self.directory / stream).read_bytes()
        return [*split.feed(content), *split.feed(b"")] if content else []

    def output(self) -> str:
        """Return everything that was printed, for messages."""
        return "\n".join(
            f"{name}:\n{(self.directory / name).read_text(encoding='utf-8')}" for name in ("stdout", "stderr")
        )

    def left(self) -> list[str]:
        """Return descriptions of the processes of this launch that are still alive."""
        return [str(process) for process in psutil.process_iter() if self._is_ours(process)]

    def listening(self) -> list[str]:
        """Return the addresses of all TCP sockets at which processes of this launch listen."""
        ours = {process.pid for process in psutil.process_iter() if self._is_ours(process)}
        listening = [one for one in psutil.net_connections("tcp") if one.status == psutil.CONN_LISTEN]
        return [one.laddr.ip for one in listening if one.laddr and one.pid in ours]

    def assert_nothing_is_left(self, seconds: float = 5.0) -> None:
        """Check that all processes of this launch end within ``seconds``."""
        deadline = time.monotonic() + seconds
        while left := self.left():
            assert time.monotonic() < deadline, f"still alive: {left}"
            time.sleep(_TICK)

    def close(self) -> None:
        """End all remaining processes."""
        for process in psutil.process_iter():
            if self._is_ours(process):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        self.process.wait(self._limit)

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return process.pid != os.getpid() and process.environ().get(MARK) == self.mark
        except psutil.Error:  # gone, or another user's
            return False
