"""Launcher that runs scripts in this process."""

from __future__ import annotations

import io
import os
import sys
import tempfile
import time
import traceback
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Literal
from unittest import mock

from det_core.interfaces.launcher import Allocation, Exit, Launcher, LaunchRequest, Phase, Status
from det_core.launch.context_archive import unpack_context_dir
from det_core.launch.output_lines import LineDecoder


class InProcessLauncher(Launcher):
    """Launcher without a defect, for scripts that may run in this process."""

    def device(self) -> Literal["cpu", "cuda"]:
        return "cpu"

    def start(self, request: LaunchRequest) -> Allocation:
        return _InProcessAllocation(request)


class _InProcessAllocation(Allocation):
    """Launch whose script runs during the second call of `wait`, because processes take a while to start."""

    def __init__(self, request: LaunchRequest) -> None:
        self._request = request
        self._waited = False
        self._end: Exit | None = None

    def wait(self, timeout: float) -> Exit | None:
        if not self._waited:
            self._waited = True
            time.sleep(0.02)
        elif self._end is None:
            self._end = Exit(code=self._run())
        return self._end

    def status(self) -> Status:
        return Status(phase=Phase.RUNNING if self._waited else Phase.STARTING)

    def preempt(self) -> None:
        pass

    def kill(self) -> None:
        pass

    def close(self) -> None:
        pass

    def _run(self) -> int:
        streams = {"stdout": io.StringIO(), "stderr": io.StringIO()}
        here = Path.cwd()
        with (
            tempfile.TemporaryDirectory() as directory,
            mock.patch.object(sys, "path", [directory, *sys.path]),
            redirect_stdout(streams["stdout"]),
            redirect_stderr(streams["stderr"]),
        ):
            unpack_context_dir(self._request.code, Path(directory))
            os.chdir(directory)
            try:
                exec(Path("main.py").read_text(), {"__name__": "__main__"})
                code = 0
            except Exception:  # noqa: BLE001
                traceback.print_exc()
                code = 1
            finally:
                os.chdir(here)
        for stream, output in streams.items():
            decoder = LineDecoder()
            for data in (output.getvalue().encode(), b""):
                for rank, text in decoder.feed(data):
                    self._request.log(rank, stream, text)
        return code
