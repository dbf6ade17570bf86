"""Examples of plugins, installed by pip."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

Run = Callable[..., str]
"""Function that runs a Python module with arguments, and returns its output and exit code."""


def install_example(
    directory: Path, example: Path, suite: str, files: Mapping[str, str] | None = None, timeout: float = 180
) -> Run:
    """Install an example, and return a function that runs modules next to its suite.

    Args:
        directory: empty directory.
        example: directory of the example.
        suite: name of the file with its tests, which is not installed.
        files: contents of further files next to the suite, by name.
        timeout: seconds that a module may run.
    """
    source, code = directory / "source", directory / "code"
    for place, names in {source: {path.name for path in example.glob("*.*")} - {suite}, code: {suite}}.items():
        place.mkdir()
        for name in names:
            (place / name).write_text((example / name).read_text())
    for name, content in (files or {}).items():
        (code / name).write_text(content)
    return install_source(directory, source, code, timeout)


def install_source(directory: Path, source: Path, code: Path, timeout: float = 180) -> Run:
    """Install a distribution, and return a function that runs modules.

    Args:
        directory: directory that will contain the installed files and ``DET_HOME``.
        source: directory of the distribution.
        code: working directory of the modules.
        timeout: seconds after which a module fails.
    """
    site = directory / "site"

    def run(*arguments: str | Path) -> str:
        path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path, "DET_HOME": str(directory / "home")}
        command = [sys.executable, "-m", *arguments]
        ran = subprocess.run(command, cwd=code, env=environment, capture_output=True, text=True, timeout=timeout)
        return f"{ran.stdout}{ran.stderr}\nexit code {ran.returncode}"

    installed = run("pip", "install", "-q", "--no-build-isolation", "--no-deps", "--target", site, source)
    assert installed.endswith("exit code 0"), installed
    return run
