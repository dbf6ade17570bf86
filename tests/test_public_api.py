"""The public names are those that docs/public_api records, and docs/contract.md is about."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def run_tool(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(cwd / "tools" / "public_api.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


def test_the_public_names_are_the_recorded_ones() -> None:
    ran = run_tool("--check")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_public_name_has_a_docstring() -> None:
    ran = run_tool("--docstrings")
    assert ran.returncode == 0, ran.stdout + ran.stderr
