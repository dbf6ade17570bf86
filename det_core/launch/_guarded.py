"""Starts a command under the guard."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from det_core.launch import _guard

_PATIENCE = 10.0
"""Seconds for killed processes to end."""


class Guarded:
    """A command in a session of its own, where a Ctrl-C in the terminal does not reach it; all of it ends with it.

    Args:
        inherit: file descriptors that all processes keep open; None: those that every child of this process inherits.
        output: where both of its streams go, as `subprocess.Popen` takes it.
    """

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        cwd: Path | None = None,
        inherit: Sequence[int] | None = (),
        output: int | None = None,
    ) -> None:
        for_guard, self._to_guard = os.pipe()
        os.set_inheritable(for_guard, inherit is None)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", _guard.__file__, str(for_guard), *argv],
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                close_fds=inherit is not None,
                pass_fds=() if inherit is None else (*inherit, for_guard),
            )
        except OSError:
            os.close(self._to_guard)
            raise
        finally:
            os.close(for_guard)

    @property
    def streams(self) -> list[tuple[str, IO[bytes]]]:
        """What it prints, if ``output`` is a pipe."""
        assert self._process.stdout and self._process.stderr
        return [("stdout", self._process.stdout), ("stderr", self._process.stderr)]

    def wait(self, timeout: float) -> int | None:
        """Its exit code (negative = a signal), or None if it still runs after that many seconds."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """End all processes at once and wait for them, except for those that the kernel cannot end."""
        with contextlib.suppress(BrokenPipeError):  # it has ended
            os.write(self._to_guard, b"!")
        if self.wait(_PATIENCE) is None:  # it may be stopped; the inner guard ends all that can be ended
            self._process.kill()
            self.wait(_PATIENCE)

    def close(self) -> None:
        """End what is left."""
        self.kill()
        os.close(self._to_guard)
