"""Modules that commands import. Imports take most of the time of a short command."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.integration

HEAVY = {"torch", "tensorflow", "numpy", "pydantic", "rich", "boto3"}


def modules_of(code: str) -> set[str]:
    """Return the modules that the code imports in a new Python process."""
    script = f"import sys\nbefore = set(sys.modules)\n{code}\nprint(*set(sys.modules) - before, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def run(*argv: str) -> set[str]:
    return modules_of(f"from det_core.cli import main\nassert main({list(argv)!r}) == 0")


def test_version_imports_almost_nothing() -> None:
    assert run("--version") - modules_of("import typing, importlib") <= {
        "__future__",
        "det_core",
        "det_core.lazy",
        "det_core.version",
        "det_core.cli",
    }


@pytest.mark.parametrize(
    "argv",
    [
        ("--help",),
        ("plugins", "list"),
        ("experiment", "list"),
        ("checkpoint", "list"),
        ("slots",),
        ("experiment", "create", "--help"),
    ],
)
def test_listings_and_help_import_nothing_heavy(argv: tuple[str, ...]) -> None:
    assert not HEAVY & run(*argv)


def test_plugins_are_listed_without_the_tracking_store() -> None:
    assert not {"sqlalchemy", "det_core.config"} & run("plugins", "list")
