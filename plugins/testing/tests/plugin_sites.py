"""Registration of plugin modules of the tests and of examples, as pip would do it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from det_testing.plugin_metadata import write_plugin_metadata

from tests.documents.page_runner import tomllib


def register_broken(site: Path, module: str) -> None:
    """Write the metadata of a distribution ``det-broken`` with this plugin module, which must be importable."""
    write_plugin_metadata(site, "det-broken", module)


def plugin_environment(site: Path, module: str) -> dict[str, str]:
    """Return the environment of a process in which a distribution in ``site`` registers this module."""
    register_broken(site, module)
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


def register_example(site: Path, example: Path) -> None:
    """Write the metadata of the distribution in a directory, whose modules must be importable."""
    project = tomllib.loads((example / "pyproject.toml").read_text())["project"]
    (module,) = project["entry-points"]["det"].values()
    write_plugin_metadata(site, project["name"], module)


def run_module(directory: Path, *arguments: str | Path) -> str:
    """Run a Python module that finds what this process finds, and return its output and exit code.

    Args:
        directory: working directory, and parent of ``DET_HOME``.
        arguments: name of the module and its arguments.
    """
    path = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": path, "DET_HOME": str(directory / "home")}
    command = [sys.executable, "-m", *arguments]
    ran = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=250)
    return f"{ran.stdout}{ran.stderr}\nexit code {ran.returncode}"
