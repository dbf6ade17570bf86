"""What a command imports is what it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.integration

HEAVY = {"torch", "tensorflow", "numpy", "pydantic", "rich", "boto3"}


def modules_of(code: str) -> set[str]:
    """The modules that the code imports in a fresh Python."""
    script = f"import sys\nbefore = set(sys.modules)\n{code}\nprint(*set(sys.modules) - before, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def run(*argv: str) -> set[str]:
    return modules_of(f"from det_core.cli import main\nassert main({list(argv)!r}) == 0")


def test_the_version_costs_nothing() -> None:
    assert run("--version") - modules_of("import typing, importlib") <= {
        "__future__",
        "det_core",
        "det_core.lazy",
        "det_core.cli",
    }


@pytest.mark.parametrize(
    "argv",
    [
        ("--help",),
        ("plugins", "list"),
        ("experiment", "list"),
        ("checkpoint", "list"),
        ("experiment", "create", "--help"),
    ],
)
def test_looking_is_light(argv: tuple[str, ...]) -> None:
    assert not HEAVY & run(*argv)


def test_plugins_are_listed_without_the_record() -> None:
    assert not {"sqlalchemy", "det_core.config"} & run("plugins", "list")
