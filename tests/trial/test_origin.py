"""Code of a checkpoint beside the code of today."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import det_core as det


@pytest.fixture
def today(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "today"
    directory.mkdir()
    (directory / "model_of_test.py").write_text("RELEASE = 'today'")
    monkeypatch.syspath_prepend(directory)
    yield directory
    sys.modules.pop("model_of_test", None)


def test_the_same_module_twice(today: Path, tmp_path: Path) -> None:
    old = tmp_path / "old"
    (old / "helpers_of_test").mkdir(parents=True)
    (old / "model_of_test.py").write_text("from helpers_of_test import part\nRELEASE = part.RELEASE")
    (old / "helpers_of_test" / "part.py").write_text("RELEASE = 'old'")
    import model_of_test

    path = list(sys.path)
    with det.import_from_path(old):
        import model_of_test as theirs
    assert (theirs.RELEASE, model_of_test.RELEASE) == ("old", "today")
    assert sys.modules["model_of_test"] is model_of_test
    assert "helpers_of_test.part" not in sys.modules
    assert sys.path == path
    assert not list(old.rglob("*.pyc"))


def test_no_directory(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), det.import_from_path(tmp_path / "nowhere"):
        pass
