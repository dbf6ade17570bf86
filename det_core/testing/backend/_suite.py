"""The backend under test, as all parts of its suite see it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar, cast

import importlib_metadata
import pytest

from det_core.plugins import Registry
from det_core.plugins import registry as installed
from det_core.specs import BackendSpec
from det_core.testing._suite import Suite
from det_core.testing.backend._launch import SECRET, Launch

Start = Callable[..., Launch]


class BackendSuite(Suite):
    """What a subclass says about its backend."""

    plugin: ClassVar[str] = ""
    """The module that the backend's entry point in the group ``det`` names."""
    name: ClassVar[str | None] = None
    """Which of the plugin's backends; None = it has one."""
    options: ClassVar[Mapping[str, Any]] = {}
    """Those of the config's ``distributed`` block, for all tests."""
    slots: ClassVar[int] = 2
    """Workers of most tests, 2 or more."""
    several_nodes: ClassVar[bool] = True
    """Whether this machine can be two nodes, 127.0.0.1 and 127.0.0.2, each started by itself."""
    joins: ClassVar[str] = ""
    """Lines of a script with which a worker joins the backend's own communication, to test where it listens."""
    limit: ClassVar[float] = 60.0
    """Seconds that a launch may take to its end, its start included."""

    @pytest.fixture(scope="class")
    @classmethod
    def registry(cls) -> Registry:
        """The plugin alone."""
        assert cls.plugin, f"{cls.__name__} must say plugin = 'my_package.plugin'"
        found = Registry([importlib_metadata.EntryPoint(cls.plugin, cls.plugin, "det")])
        assert [report.problem for report in found.reports] == [""]
        return found

    @pytest.fixture(scope="class")
    @classmethod
    def spec(cls, registry: Registry) -> BackendSpec:
        names = registry.names("backend") if cls.name is None else [cls.name]
        assert len(names) == 1, (
            f"{cls.plugin} offers the backends {names}; {cls.__name__} must say name = 'one of them'"
        )
        return cast("BackendSpec", registry.find("backend", names[0]))

    @pytest.fixture
    def start(self, spec: BackendSpec, tmp_path: Path) -> Iterator[Start]:
        """Start a script on ``slots`` workers; keywords are the arguments of `Launch`."""
        path = os.pathsep.join([*self._site(tmp_path), *filter(None, sys.path)])
        env = {**os.environ, "PYTHONPATH": path, "DET_COMM_KEY": SECRET, "DET_HOME": str(tmp_path / "home")}
        with ExitStack() as ending:

            def start(script: str, *, slots: int = self.slots, arguments: tuple[str, ...] = (), **more: Any) -> Launch:
                extra = {"arguments": arguments, "env": {**env, **more.pop("env", {})}, "limit": self.limit, **more}
                launch = Launch(tmp_path, spec.name, script, slots=slots, options=self.options, **extra)
                ending.callback(launch.close)
                return launch

            yield start

    def _site(self, directory: Path) -> list[str]:
        """Where other processes find the plugin, if it is not installed."""
        if any(report.module == self.plugin for report in installed().reports):
            return []
        info = directory / "site" / "det_compliance-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: det-compliance\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[det]\ncompliance = {self.plugin}\n")
        return [str(info.parent)]


def told(launch: Launch) -> list[Any]:
    """What each worker wrote to its file, in the order of their ranks."""
    return [json.loads(path.read_text()) for path in sorted(launch.out.glob("*.json"), key=lambda one: int(one.stem))]
