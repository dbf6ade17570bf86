"""Maximum numbers of modules that imports and commands load. These numbers are only lowered."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import det_core
from det_core.launch._prepared_command import WORKER_MODULES

pytestmark = pytest.mark.integration

DET = str(Path(sys.executable).parent / "det")
HEAVY = {"torch", "tensorflow", "boto3", "google", "ray", "numpy", "rich"}
LIBRARIES = HEAVY | {"pydantic", "sqlalchemy", "yaml", "email.parser"}
RECORDS = {"det_core.config", "det_core.interfaces.records"}
USES = {
    ("-c", "import det_core"): (4, LIBRARIES),
    ("-c", "import det_torch"): (4, LIBRARIES),
    ("-c", "from det_core import core"): (151, LIBRARIES | {"det_core.config", "pluggy", "ssl"}),
    ("-c", "from det_core import core\nwith core.init(): pass"): (
        None,
        HEAVY | {"pydantic", "yaml", "importlib_metadata", "det_core.interfaces.launcher"},
    ),
    ("-c", "import " + ", ".join(WORKER_MODULES)): (241, LIBRARIES | {"det_core.tracking.reading_limits"}),
    (DET, "--version"): (25, LIBRARIES),
    (DET, "--help"): (155, LIBRARIES | RECORDS),
    (DET, "plugins", "list"): (170, LIBRARIES | RECORDS),
    (DET, "experiment", "list"): (
        405,
        HEAVY | {"pydantic", "yaml", "sqlalchemy.dialects.postgresql", "email.parser"},
    ),
    (DET, "checkpoint", "list"): (None, HEAVY | {"pydantic"}),
    (DET, "slots"): (None, HEAVY | {"pydantic"}),
    (DET, "experiment", "create", "--help"): (None, HEAVY | {"pydantic"}),
}
"""Imports and commands mapped to the maximum number of modules that they load, and to modules that they do not load."""


def imported(*command: str) -> set[str]:
    result = subprocess.run(
        [sys.executable, "-X", "importtime", *command], capture_output=True, text=True, timeout=100, check=True
    )
    lines = [line for line in result.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines[1:]}


@pytest.fixture(scope="module")
def bare() -> set[str]:
    return imported("-c", "pass")


@pytest.mark.parametrize("command", USES, ids=lambda command: " ".join(command[-2:]).replace(DET, "det")[:60])
def test_imports_and_commands_load_few_modules(bare: set[str], command: tuple[str, ...]) -> None:
    budget, absent = USES[command]
    added = imported(*command) - bare
    assert budget is None or len(added) <= budget, sorted(added)
    assert {name for name in added if {name, name.partition(".")[0]} & absent} == set()
    if command[1:] == ("--version",):
        ours = {name for name in added if name.partition(".")[0] == "det_core"}
        assert ours <= {"det_core", "det_core.lazy", "det_core.version", "det_core.cli"}


def test_every_public_name_resolves() -> None:
    assert all(getattr(det_core, name) is not None for name in det_core.__all__)
    assert set(det_core._EXPORTS) < set(dir(det_core))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = det_core.nonsense
