"""Command that runs under the guard."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from det_core.launch import _guard

_KILL_SECONDS = 10.0
"""Seconds to wait for the end of killed processes."""


class GuardedCommand(ABC):
    """Command below two guards, in a session of its own, which a Ctrl-C in the terminal does not reach.

    All processes that the command has started end with it.

    Args:
        to_guard: file descriptor of the channel to the outer guard.
    """

    def __init__(self, to_guard: int) -> None:
        self._to_guard = to_guard

    @abstractmethod
    def wait(self, timeout: float) -> int | None:
        """Return the exit code (negative for a signal), or None if the command still runs after ``timeout`` seconds."""

    @abstractmethod
    def _kill_guard(self) -> None:
        """Kill the outer guard, which has not ended."""

    def kill(self) -> None:
        """End all processes at once and wait for them, except for those that the kernel cannot end."""
        if self.wait(0) is not None:
            return  # the channel may be closed, and its number that of another file
        with contextlib.suppress(BrokenPipeError):  # the guard has just ended
            os.write(self._to_guard, b"!")
        if self.wait(_KILL_SECONDS) is None:  # the guard may be stopped, but the inner guard ends all that can be ended
            self._kill_guard()
            self.wait(_KILL_SECONDS)

    def close(self) -> None:
        """End the remaining processes and close the channel to the guard."""
        self.kill()
        os.close(self._to_guard)


class SpawnedCommand(GuardedCommand):
    """Command that is started below its guards.

    Args:
        argv: the command.
        env: its whole environment.
        cwd: its working directory, or None for that of this process.
        inherit: file descriptors that all processes keep open, or None for all inheritable ones of this process.
        outputs: file descriptors that become stdout and stderr, or None for those of this process.

    Raises:
        OSError: the guard could not be started.
    """

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        cwd: Path | None = None,
        inherit: Sequence[int] | None = (),
        outputs: Sequence[int | None] = (None, None),
    ) -> None:
        for_guard, to_guard = os.pipe()
        os.set_inheritable(for_guard, inherit is None)
        stdout, stderr = outputs
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", _guard.__file__, str(for_guard), *argv],
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                close_fds=inherit is not None,
                pass_fds=() if inherit is None else (*inherit, for_guard),
            )
        except BaseException:  # such as ValueError for a NUL in a variable
            os.close(to_guard)
            raise
        finally:
            os.close(for_guard)
        super().__init__(to_guard)

    def wait(self, timeout: float) -> int | None:
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def _kill_guard(self) -> None:
        self._process.kill()
