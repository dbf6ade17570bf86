"""Attributes and fixtures that all parts of the backend suite share."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from det_core.plugins import Registry
from det_core.plugins import plugin_registry as installed
from det_core.specs import BackendSpec
from det_testing._plugin_suite import PluginSuite
from det_testing.backend._launched_script import SECRET, LaunchedScript
from det_testing.plugin_metadata import write_plugin_metadata

StartScript = Callable[..., LaunchedScript]


class BackendSuite(PluginSuite):
    """Attributes that describe the backend, set by subclasses."""

    name: ClassVar[str | None] = None
    """Name of the backend, or None if the plugin offers only one."""
    options: ClassVar[Mapping[str, Any]] = {}
    """Options of the config's ``distributed`` block for all tests."""
    slots: ClassVar[int] = 2
    """Number of workers in most tests, 2 or more."""
    several_nodes: ClassVar[bool] = True
    """Whether this machine can act as two nodes, 127.0.0.1 and 127.0.0.2, each launched separately."""
    joins: ClassVar[str] = ""
    """Lines of a script with which a worker joins the backend's own communication, to test where it listens."""
    limit: ClassVar[float] = 60.0
    """Time limit of a launch in seconds, including its start."""

    @pytest.fixture(scope="class")
    @classmethod
    def spec(cls, registry: Registry) -> BackendSpec:
        """Return the spec of the backend."""
        names = registry.names("backend") if cls.name is None else [cls.name]
        assert len(names) == 1, (
            f"{cls.plugin} offers the backends {names}; {cls.__name__} must set name = 'one of them'"
        )
        return cast("BackendSpec", registry.find("backend", names[0]))

    @pytest.fixture
    def start(self, spec: BackendSpec, tmp_path: Path) -> Iterator[StartScript]:
        """Return a function that starts a script on ``slots`` workers.

        Its keywords are arguments of `LaunchedScript`.
        """
        path = os.pathsep.join([*self._site(tmp_path), *filter(None, sys.path)])
        env = {**os.environ, "PYTHONPATH": path, "DET_COMM_KEY": SECRET, "DET_HOME": str(tmp_path / "home")}
        with ExitStack() as ending:

            def start(
                script: str, *, slots: int = self.slots, arguments: tuple[str, ...] = (), **more: Any
            ) -> LaunchedScript:
                extra = {"arguments": arguments, "env": {**env, **more.pop("env", {})}, "limit": self.limit, **more}
                launch = LaunchedScript(tmp_path, spec.name, script, slots=slots, options=self.options, **extra)
                ending.callback(launch.close)
                return launch

            yield start

    def _site(self, directory: Path) -> list[str]:
        """Return directories from which other processes can import the plugin's metadata, if it is not installed."""
        if any(report.module == self.plugin for report in installed().reports):
            return []
        write_plugin_metadata(directory / "site", "det-compliance", self.plugin)
        return [str(directory / "site")]


def reported_values(launch: LaunchedScript) -> list[Any]:
    """Return the values that workers wrote, in the order of their ranks."""
    return [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(launch.out.glob("*.json"), key=lambda one: int(one.stem))
    ]
