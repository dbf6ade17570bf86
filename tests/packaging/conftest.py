"""Wheels of all distributions, and environments to install them into."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory into which ``make dist`` wrote the wheels and sdists of all distributions."""
    directory = tmp_path_factory.mktemp("dist")
    environment = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    command = ["make", "dist", f"DIST={directory}", f"PYTHON={sys.executable}"]
    made = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert made.returncode == 0, made.stdout[-5000:] + made.stderr[-5000:]
    return directory


class Environment:
    """Virtual environment that contains nothing but pip."""

    def __init__(self, directory: Path, archives: Path, python: str) -> None:
        self.directory = directory / "venv"
        self.programs = self.directory / "bin"
        self._variables = {
            **{key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")},
            "DET_HOME": str(directory / "home"),
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "PIP_FIND_LINKS": f"{os.environ.get('PIP_FIND_LINKS', '')} {archives}",
        }
        self.run(python, "-m", "venv", self.directory)

    def run(self, *command: str | Path) -> str:
        """Run a command, and return what it prints."""
        ran = subprocess.run(
            command, cwd=self.directory.parent, env=self._variables, capture_output=True, text=True, timeout=1500
        )
        assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-5000:]
        return ran.stdout + ran.stderr

    def install(self, *names: str) -> None:
        """Install det's distributions from the wheels, by name, and then everything else that was named or required."""
        pip = (self.programs / "pip", "install", "-q", "--no-compile")
        if det := [name for name in names if name.startswith("det-")]:
            self.run(*pip, "--no-index", "--no-deps", *det)
        self.run(*pip, *names)


@pytest.fixture
def new_environment(tmp_path: Path, archives: Path) -> Iterator[Callable[..., Environment]]:
    """Return a function that makes an empty environment. Afterwards, its gigabytes are deleted."""
    yield lambda python=sys.executable: Environment(tmp_path, archives, python)
    shutil.rmtree(tmp_path / "venv", ignore_errors=True)
