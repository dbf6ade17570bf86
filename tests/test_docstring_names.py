"""Names in docstrings, which ``tools/docstring_names.py`` checks."""

from __future__ import annotations

from pathlib import Path

import docstring_names
import pytest

CODE = '''
"""A module."""

import json

LIMIT = 3


class Base:
    """A class."""

    def poll(self) -> None:
        """Poll."""


class Reader(Base):
    """A class.

    Args:
        size: a number.
    """

    def __init__(self, size):
        self.buffer = bytes(size)

    def read(self, count):
        """MENTION"""
        options.add("det", "--best", "list")


def load(path):
    """Load."""
'''
TRUE = [
    "`count`, `size`, `buffer`, `poll` and `LIMIT`",
    "`load`, `Reader.poll`, `pack.code`, `code.Base.poll()` and `json.dumps`",
    "``count``, ``path``, ``--best``, ``det list`` and ``any 'other' text``",
    "Read.\n\n        Raises:\n            OSError, IOError: x.\n            Base: a\n                line of: text.",
]
UNTRUE = {
    "`look`": "look",
    "`path`": "path",
    "`Reader.look`": "Reader.look",
    "`pack.code.look`": "pack.code.look",
    "``Transient``": "Transient",
    "``Reader.Transient``": "Reader.Transient",
    "``--worst``": "--worst",
    "``det show``": "det show",
    "Read.\n\n        Raises:\n            OSError, Transient: it is broken.": "Transient",
}


@pytest.fixture(autouse=True)
def _no_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(docstring_names, "ELSEWHERE", {})
    monkeypatch.chdir(tmp_path)


def check(text: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Check a package of one module, and return what is printed before the summary."""
    Path("pack").mkdir()
    Path("pack/code.py").write_text(CODE.replace("MENTION", text).lstrip())
    code = docstring_names.main(["pack"])
    lines = capsys.readouterr().out.splitlines()[:-1]
    assert code == bool(lines)
    return lines


@pytest.mark.parametrize("text", TRUE)
def test_a_name_that_exists_is_fine(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(text, capsys) == []


@pytest.mark.parametrize("text", UNTRUE)
def test_a_name_that_does_not_exist_is_printed(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = 26 + text.count("\n")
    assert check(text, capsys) == [f"pack/code.py:{line}: {UNTRUE[text]} does not exist"]


def test_names_of_other_projects_are_in_a_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docstring_names, "ELSEWHERE", {"nohup": "the shell", "srun": "Slurm"})
    assert check("``nohup``", capsys) == ["srun is not used; remove it from ELSEWHERE"]
