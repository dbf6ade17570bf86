"""Maximum numbers of modules that imports and commands load. These numbers are only lowered."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import det_core

pytestmark = pytest.mark.integration

DET = str(Path(sys.executable).parent / "det")
HEAVY = {"torch", "tensorflow", "boto3", "google", "ray", "numpy"}


def imported(*command: str) -> set[str]:
    result = subprocess.run(
        [sys.executable, "-X", "importtime", *command], capture_output=True, text=True, timeout=60, check=True
    )
    lines = [line for line in result.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines[1:]}


@pytest.fixture(scope="module")
def bare() -> set[str]:
    return imported("-c", "pass")


@pytest.mark.parametrize(
    ("command", "budget"),
    [
        (("-c", "import det_core"), 4),
        (("-c", "import det_torch"), 4),
        ((DET, "--version"), 30),
        (("-c", "from det_core import core"), 152),
        ((DET, "--help"), 160),
        ((DET, "plugins", "list"), 170),
        ((DET, "experiment", "list"), 400),
    ],
)
def test_imports_and_commands_load_few_modules(bare: set[str], command: tuple[str, ...], budget: int) -> None:
    added = imported(*command) - bare
    assert len(added) <= budget, sorted(added)


@pytest.mark.parametrize("command", [("plugins", "list"), ("experiment", "list"), ("--help",)])
def test_listing_imports_no_framework(bare: set[str], command: tuple[str, ...]) -> None:
    roots = {name.partition(".")[0] for name in imported(DET, *command)}
    assert roots & HEAVY == set()


@pytest.mark.parametrize(
    ("command", "absent"),
    [
        (("-c", "from det_core import core"), {"det_core.config", "pydantic", "sqlalchemy", "yaml", "pluggy", "ssl"}),
        (("-c", "from det_core import core\nwith core.init(): pass"), {"pydantic", "yaml", "importlib_metadata"}),
        ((DET, "--help"), {"pydantic", "sqlalchemy", "yaml", "email.parser", "det_core.interfaces.records"}),
        ((DET, "plugins", "list"), {"pydantic", "sqlalchemy", "yaml", "email.parser", "det_core.interfaces.records"}),
        ((DET, "experiment", "list"), {"pydantic", "yaml", "sqlalchemy.dialects.postgresql", "email.parser"}),
    ],
)
def test_imports_and_commands_load_no_unneeded_modules(
    bare: set[str], command: tuple[str, ...], absent: set[str]
) -> None:
    assert imported(*command) & absent == set()


def test_every_public_name_resolves() -> None:
    assert all(getattr(det_core, name) is not None for name in det_core.__all__)
    assert set(det_core._EXPORTS) < set(dir(det_core))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = det_core.nonsense
