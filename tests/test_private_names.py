"""tools/private_names.py finds uses of private names of other distributions, and nothing else."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
CORE = """
class Store:
    def __init__(self):
        self._rows = []

    def _read(self): ...
"""


@pytest.fixture
def check(tmp_path: Path) -> Any:
    """Return a function that writes a file of a plugin and returns the result of the tool."""
    tool = runpy.run_path(str(ROOT / "tools/private_names.py"))
    tool["EXCEPTIONS"].clear()
    for file, text in {"det_core/__init__.py": "", "det_core/_store.py": CORE, "det_core/public.py": ""}.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)

    def check(text: str, file: str = "plugins/mine/det_mine/__init__.py") -> int:
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_text(text)
        return int(tool["main"]([str(tmp_path)]))

    return check


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("from det_core._store import Store", "det_core._store.Store"),
        ("from det_core import _store", "det_core._store"),
        ("import det_core._store", "det_core._store"),
        ("import det_core\ndet_core._store.Store()", "det_core._store"),
        ("target = 'det_core._store:Store'", "det_core._store:Store"),
        ("import det_core\ndef use(store): store._rows", "store._rows"),
        ("import det_core\nclass Mine(det_core.Base):\n    def use(self): self._read()", "self._read"),
    ],
)
@pytest.mark.parametrize(
    "file", ["plugins/mine/det_mine/__init__.py", "plugins/mine/tests/test_it.py", "examples/a.py"]
)
def test_a_private_name_of_another_distribution_is_found(
    check: Any, capsys: pytest.CaptureFixture[str], text: str, name: str, file: str
) -> None:
    assert check(text, file) == 1
    line = text.count("\n") + 1
    assert f"{file}:{line}: {name} is private to another distribution; use a public name\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("from det_core import public", "plugins/mine/det_mine/__init__.py"),
        ("from det_core._store import Store", "tests/test_store.py"),
        ("from det_mine import _own\nimport det_mine.__main__", "plugins/mine/det_mine/__init__.py"),
        ("import det_core\nclass Mine:\n    _rows = 1\n    def use(self): self._rows", "examples/a.py"),
        ("import torch\ntorch._C\ndef use(store): store._rows", "examples/a.py"),
        ("import det_core\npoint._replace(x=1)", "examples/a.py"),
    ],
)
def test_other_names_are_not_found(check: Any, text: str, file: str) -> None:
    assert check(text, file) == 0
