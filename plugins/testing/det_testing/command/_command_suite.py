"""Attributes and fixtures that all parts of the suite for commands share."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, cast

import pytest

from det_core.plugins import plugin_registry
from det_core.specs import CommandSpec
from det_testing.suite import ComplianceSuite

Ran = subprocess.CompletedProcess[str]
"""Exit code and output of a command."""
Det = Callable[..., Ran]
"""Function that runs ``det`` with arguments, in a process of its own."""


class CommandSuite(ComplianceSuite):
    """Attributes that describe the command, set by subclasses."""

    name: ClassVar[str] = ""
    """Name of the command, as in ``det NAME``. Its distribution must be installed."""
    arguments: ClassVar[Sequence[str]] = ()
    """Arguments of a run that succeeds, such as ``("list",)``, without ``--json``."""
    failing: ClassVar[Sequence[str]] = ()
    """Arguments of a run that fails, for example because something does not exist. Not a wrong usage."""
    waiting: ClassVar[Sequence[str] | None] = None
    """Arguments of a run that prints something and then goes on until Ctrl-C. None if there is none."""
    module_budget: ClassVar[int] = 10
    """Maximum number of modules that the plugin adds to those that ``det --help`` imports."""

    @pytest.fixture
    def directory(self, tmp_path: Path) -> Path:
        """Return the working directory of the command. Subclasses may override this fixture to create files there.

        ``DET_HOME`` is its subdirectory ``home``.
        """
        return tmp_path

    @pytest.fixture
    def spec(self) -> CommandSpec:
        """Return the spec of the command."""
        assert self.name, f"{type(self).__name__} must set name = 'my-command'"
        return cast("CommandSpec", plugin_registry().find("command", self.name))

    @pytest.fixture
    def parser(self, spec: CommandSpec) -> argparse.ArgumentParser:
        """Return a parser of the command."""
        parser = argparse.ArgumentParser(prog=f"det {self.name}")
        plugin_registry().load(spec)(parser)
        return parser

    @pytest.fixture
    def environment(self, directory: Path) -> dict[str, str]:
        """Return the environment of the command."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("DET_")}
        return {
            **inherited,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "PYTHONUNBUFFERED": "1",
            "DET_HOME": str(directory / "home"),
            "COLUMNS": "200",
        }

    @pytest.fixture
    def det(self, directory: Path, environment: dict[str, str]) -> Det:
        """Return a function that runs a command to its end."""

        def run(*arguments: str, **more: str) -> Ran:
            return subprocess.run(
                [sys.executable, "-m", "det_core.cli", *arguments],
                cwd=directory,
                env={**environment, **more},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                timeout=60,
            )

        return run
