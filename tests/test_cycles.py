"""Cycles of imports, which ``tools/cycles.py`` finds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parent.parent / "tools" / "cycles.py"


@pytest.mark.parametrize(
    ("files", "cycles"),
    [
        ({"__init__": "from pack.a import A", "a": "from pack.b import B", "b": "import os"}, []),
        ({"a": "from pack import b", "b": "import pack.a"}, ["pack.a -> pack.b -> pack.a"]),
        (
            {"a": "def f():\n    from .b import B", "b": "if TYPE_CHECKING:\n    from pack.a import f"},
            ["pack.a -> pack.b -> pack.a"],
        ),
        ({"__init__": "from pack.a import A", "a": "from pack import version"}, ["pack -> pack.a -> pack"]),
    ],
)
def test_cycles_are_printed(files: dict[str, str], cycles: list[str], tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    for name, text in files.items():
        (tmp_path / "pack" / f"{name}.py").write_text(text)
    ran = subprocess.run([sys.executable, TOOL, "pack"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ran.stdout.splitlines() == [*cycles, f"{len(files)} modules: {len(cycles)} cycles"], ran.stderr
    assert ran.returncode == bool(cycles)
