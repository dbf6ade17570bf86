"""Processes of launches that start at once, because a prepared process has imported their modules."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, cast

from det_core.errors import DetError, LaunchError
from det_core.launch._framework_lookup import find_framework
from det_core.launch._guard import ENGINE_VARIABLE
from det_core.launch._guarded_command import GuardedCommand, SpawnedCommand
from det_core.launch.prepared_process import PreparedProcess, prepared_processes
from det_core.plugins import plugin_registry
from det_core.specs import BackendSpec

WORKER_MODULES = (
    "det_core.comm._ranks",
    "det_core.core._checkpoints._free_space",
    "det_core.core._event_file",
    "det_core.core.agent_channel",
    "det_core.launch.backends",
    "det_core.local_files.file_by_file",
    "det_core.plugins._events",
    "det_core.storage._delete",
    "det_core.storage._restore",
    "det_core.storage._save",
    "det_core.storage.directory",
    "det_core.tracking.remote._agent_socket",
    "det_core.trial.tensorboard_upload",
    "det_core.trial.trial_description",
)
"""Modules that workers of all frameworks import."""
SLOT_MODULES = (
    "det_core.comm._collective_channel",
    "det_core.comm._mesh",
    "det_core.config._plugin_blocks",
    "det_core.config._validation_errors",
    "det_core.launch._node",
    "det_core.launch.standalone",
)
"""Further modules that workers on several slots and their launchers import."""
_OWN_VARIABLES = ("CUDA_VISIBLE_DEVICES",)
_LASTING_VARIABLES = ("DET_DISABLE_PLUGINS", ENGINE_VARIABLE)
"""Variables of det that a process reads before it has a trial."""


def find_worker_modules(entrypoint: str, code: Path, backend: str | None) -> list[str]:
    """Return the modules of det, of the trial's framework and of its backend that may be imported early.

    Args:
        entrypoint: the trial class as MODULE:CLASS.
        code: directory with the user's code, which is read, but not run.
        backend: name of the backend that starts the workers, or None if there is only one worker.
    """
    framework = None
    with suppress(DetError):  # such as two plugins that claim the trial, which the worker reports
        framework = find_framework(entrypoint, code)
    modules = [*WORKER_MODULES, *(framework.prepare if framework else ())]
    if backend:
        spec = cast("BackendSpec", plugin_registry().find("backend", backend))
        modules += [*SLOT_MODULES, *spec.prepare]
    return modules


def find_prepared_process(modules: Sequence[str], env: Mapping[str, str]) -> PreparedProcess:
    """Return the process from which commands are forked, which is started if there is none.

    Args:
        modules: modules that it imports.
        env: environment of such a command. Variables of a single launch have no effect.

    Raises:
        OSError: it could not be started.
    """
    lasting = {name: value for name, value in env.items() if not _belongs_to_launch(name)}
    return prepared_processes().get(modules, lasting)


class PreparedCommand:
    """Command ``python -m MODULE ARGUMENT...`` that a prepared process runs in a fork, if possible.

    Otherwise it starts as a new process. It starts in `wait`, once the modules are imported, which takes as long as in
    the process itself.

    Args:
        modules: modules to import before.
        argv: name of the module, and its arguments.
        env: whole environment of the command.
        cwd: its working directory.
        inherit: file descriptors that all processes keep open.
        outputs: file descriptors that become stdout and stderr.
        starts_others: whether it starts workers, which are forks, too.
        explain: function that is called with the reason if the command starts as a new process.

    Raises:
        OSError: the prepared process could not be started.
    """

    def __init__(
        self,
        modules: Sequence[str],
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        cwd: Path,
        inherit: Sequence[int],
        outputs: Sequence[int],
        starts_others: bool = False,
        explain: Callable[[str], None],
    ) -> None:
        self._argv, self._env, self._cwd, self._explain = argv, env, cwd, explain
        self._starts_others = starts_others
        self._prepared = find_prepared_process(modules, env)
        self._command: GuardedCommand | None = None
        self._killed = False
        with ExitStack() as undo:
            self._outputs, self._inherit = ([_duplicate(one, undo) for one in kept] for kept in (outputs, inherit))
            self._undo = undo.pop_all()

    def wait(self, timeout: float) -> int | None:
        """Return the exit code (negative for a signal), or None if the command has not ended after the time.

        Raises:
            OSError: the command could not be started.
        """
        end = time.monotonic() + timeout
        if self._command is None and not self._killed and self._prepared.wait(timeout):
            with self._undo:
                self._command = self._start()
        if self._command is None:
            return -signal.SIGKILL if self._killed else None
        return self._command.wait(max(0.0, end - time.monotonic()))

    def kill(self) -> None:
        """End all processes at once and wait for them, except for those that the kernel cannot end."""
        self._killed = True
        self._undo.close()
        if self._command:
            self._command.kill()

    def close(self) -> None:
        """End the remaining processes."""
        self.kill()
        if self._command:
            self._command.close()

    def _start(self) -> GuardedCommand:
        problem = self._prepared.problem
        keep: Any = {"cwd": self._cwd, "inherit": self._inherit, "outputs": self._outputs}
        if taken := sorted(_module_names(self._cwd) & {*self._prepared.names}):
            problem = f"the code has a module {taken[0]}, and so have the libraries"
        if not problem:
            try:
                return self._prepared.fork(self._argv, self._env, starts_others=self._starts_others, **keep)
            except LaunchError as error:
                problem = str(error)
        self._explain(f"the worker starts as a new process, because {problem}")
        return SpawnedCommand([sys.executable, "-m", *self._argv], self._env, **keep)


def _module_names(code: Path) -> set[str]:
    """Return the names of the modules that are found in a directory before those of libraries."""
    return {path.stem for path in code.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}


def _belongs_to_launch(name: str) -> bool:
    """Return whether an environment variable may differ between launches of one prepared process."""
    return name in _OWN_VARIABLES or (name.startswith("DET_") and name not in _LASTING_VARIABLES)


def _duplicate(descriptor: int, undo: ExitStack) -> int:
    duplicate = os.dup(descriptor)
    undo.callback(os.close, duplicate)
    return duplicate
