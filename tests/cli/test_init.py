"""The command ``det init``: the starter of the Core API, the choice of the framework, and refusals."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from .conftest import Det, Install, disable_plugins_except

FILES = {"const.yaml", "iris.csv", "train.py"}


@pytest.fixture(autouse=True)
def _working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disable_plugins_except(monkeypatch, "det-core", "det-starting")
    monkeypatch.chdir(tmp_path)


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


@pytest.mark.integration
def test_the_next_commands_train_the_core_starter(det: Det, monkeypatch: pytest.MonkeyPatch) -> None:
    *_, enter, check, run = det("init", "my project").out.splitlines()
    assert enter.split(maxsplit=1)[1] == "'my project'"
    monkeypatch.chdir("my project")
    for line in (check, run):
        result = det(*shlex.split(line)[1:])
        assert result.code == 0, result.out + result.err
    assert "best checkpoint" in result.out
    assert det("experiment", "list", "--json").json[0]["state"] == "COMPLETED"


def test_the_document_lists_the_files(det: Det, tmp_path: Path) -> None:
    document = det("init", "new", "--json").json
    assert set(document["files"]) == names(tmp_path / "new") == FILES
    assert (document["framework"], document["directory"]) == ("core", str(tmp_path / "new"))
    assert document["next"] == ["cd new", "det config check const.yaml", "det run const.yaml"]


@pytest.mark.parametrize("existing", sorted(FILES))
def test_no_file_is_overwritten(det: Det, tmp_path: Path, existing: str) -> None:
    (tmp_path / existing).write_text("mine")
    (tmp_path / "other.txt").touch()
    result = det("init")
    assert (result.code, result.out) == (1, "")
    assert f"already has {existing}, which is not overwritten" in result.err
    assert (tmp_path / existing).read_text() == "mine"
    assert not names(tmp_path) & (FILES - {existing})


def test_directories_that_cannot_be_used_are_named(det: Det, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "does not exist; type: mkdir -p" in det("init", "no/such").err
    assert "file exists and is not overwritten" in det("init", "file").err
    assert not names(tmp_path) & (FILES | {"no"})


def test_a_failed_write_leaves_nothing(det: Det, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Path.open

    def fill_up(path: Path, mode: str = "r", **options: Any) -> Any:
        if path.name == "train.py" and mode == "x":
            raise OSError(28, "No space left on device")
        return opened(path, mode, **options)

    monkeypatch.setattr(Path, "open", fill_up)
    result = det("init", "new")
    assert (result.code, "No space left on device" in result.err) == (1, True)
    assert not (tmp_path / "new").exists()


def test_frameworks_that_are_not_installed_name_their_distribution(det: Det) -> None:
    assert "det-keras" in det("init", "--framework", "keras").err
    assert "did you mean 'pytorch'?" in det("init", "--framework", "pytorc").err


def test_a_framework_of_a_plugin_is_the_default(det: Det, install: Install, tmp_path: Path) -> None:
    install(
        "det-starting",
        "from det_core import hookimpl\nfrom det_core.specs import FrameworkSpec\n"
        "@hookimpl\ndef det_frameworks():\n"
        "    yield FrameworkSpec(name='mine', target='mine:run', starter='mine_starters:mine')\n"
        "    yield FrameworkSpec(name='bare', target='mine:run')\n",
    )
    package = tmp_path / "det-starting" / "mine_starters" / "mine"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("raise AssertionError('imported')")
    (package / "const.yaml").write_text("name: mine\n")
    assert det("init", "new", "--json").json["framework"] == "mine"
    assert names(tmp_path / "new") == {"const.yaml", "iris.csv"}
    assert "'bare' has no starter; expected one of: mine, core" in det("init", "--framework", "bare").err
