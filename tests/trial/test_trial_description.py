"""Imports of a checkpoint's code next to newer code of the same name."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import det_core as det
from det_core.errors import CheckpointCorrupt, InvalidTrial, UntrustedCheckpoint
from det_core.trial import Trial
from det_core.trial.trial_description import (
    find_trial_class,
    loading_as,
    make_trial,
    read_description,
    write_description,
)


@pytest.fixture
def today(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "today"
    directory.mkdir()
    (directory / "model_of_test.py").write_text("RELEASE = 'today'")
    monkeypatch.syspath_prepend(directory)
    yield directory
    sys.modules.pop("model_of_test", None)


def test_two_versions_of_a_module_can_be_imported_side_by_side(today: Path, tmp_path: Path) -> None:
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


def test_importing_from_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), det.import_from_path(tmp_path / "nowhere"):
        pass


@pytest.mark.parametrize("key", ["hparams", "experiment_config"])
@pytest.mark.parametrize("value", ["text", [1], 3, False])
def test_a_description_with_other_types_is_damaged(tmp_path: Path, key: str, value: object) -> None:
    write_description({key: value}, tmp_path)
    with pytest.raises(CheckpointCorrupt, match=f"load_data.json is damaged: expected {key} to be an object, found "):
        read_description(tmp_path)
    write_description({key: None}, tmp_path)
    assert read_description(tmp_path) == {key: None}


EVIL = "raise SystemExit('code of the checkpoint runs')"
TRIAL = "from det_core.trial import Trial\nclass MyTrial(Trial): pass"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a working directory that Python imports from, with a checkpoint below it that contains code."""
    before = set(sys.modules)
    (tmp_path / "project" / "checkpoints_of_test" / "id_of_test").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    (tmp_path / "project" / "checkpoints_of_test" / "id_of_test" / "evil.py").write_text(EVIL)
    importlib.invalidate_caches()
    yield tmp_path / "project"
    for name in set(sys.modules) - before:
        del sys.modules[name]


def find(name: str, path: Path, *, trust: bool = False) -> Any:
    return find_trial_class(path, {"trial_cls_spec": name}, Trial, call="load(path, MyTrial)", shared=(), trust=trust)


CHECKPOINT = Path("checkpoints_of_test", "id_of_test")


@pytest.mark.parametrize(
    ("entry", "module"),
    [
        ("", "checkpoints_of_test.id_of_test.evil"),
        (".", "checkpoints_of_test.id_of_test.evil"),
        ("checkpoints_of_test", "id_of_test.evil"),
        ("checkpoints_of_test/id_of_test", "evil"),
    ],
)
def test_nothing_is_imported_from_a_checkpoint(project: Path, entry: str, module: str) -> None:
    sys.path.insert(0, str(project / entry) if entry else "")
    path = list(sys.path)
    with pytest.raises(UntrustedCheckpoint, match=r"a directory that contains the checkpoint.*pass the class"):
        find(f"{module}:MyTrial", CHECKPOINT)
    assert sys.path == path


def test_nothing_is_imported_from_directories_above_a_checkpoint(project: Path) -> None:
    (project / "mine_of_test.py").write_text(TRIAL)
    (project / "checkpoints_of_test" / "beside_of_test.py").write_text(EVIL)
    for name in ("mine_of_test:MyTrial", "checkpoints_of_test.beside_of_test:MyTrial"):
        with pytest.raises(UntrustedCheckpoint, match=r"pass the class, load\(path, MyTrial\), or trust=True"):
            find(name, CHECKPOINT.absolute())
    assert find("mine_of_test:MyTrial", CHECKPOINT, trust=True).__name__ == "MyTrial"
    assert find("mine_of_test:MyTrial", CHECKPOINT).__name__ == "MyTrial", "already imported, so no code runs"


def test_the_recorded_entrypoint_may_be_imported_from_anywhere(project: Path) -> None:
    (project / "recorded_of_test.py").write_text(TRIAL)
    with loading_as("load()", "recorded_of_test:MyTrial"):
        assert find("recorded_of_test:MyTrial", CHECKPOINT).__module__ == "recorded_of_test"
        with pytest.raises(UntrustedCheckpoint):
            find("checkpoints_of_test.id_of_test.evil:MyTrial", CHECKPOINT)
    for other in ("python3 train.py", ["python3", "train.py"], None, "gone_of_test:MyTrial"):
        with loading_as("load()", other), pytest.raises(UntrustedCheckpoint):
            find("checkpoints_of_test.id_of_test.evil:MyTrial", CHECKPOINT)


def test_recorded_code_is_used_where_the_class_cannot_be_imported(project: Path, tmp_path: Path) -> None:
    recorded, asked = tmp_path / "recorded", []
    recorded.mkdir()
    (recorded / "elsewhere_of_test.py").write_text(TRIAL)

    def code(trust: bool) -> Path | None:
        asked.append(trust)
        return recorded if trust or mine else None

    mine = True
    with loading_as("load(mine)", "elsewhere_of_test:MyTrial", code):
        assert find("elsewhere_of_test:MyTrial", CHECKPOINT).__module__ == "elsewhere_of_test"
        for name in ("gone_of_test:MyTrial", "checkpoints_of_test.id_of_test.evil:MyTrial"):
            with pytest.raises((InvalidTrial, UntrustedCheckpoint), match=r"load\(mine\)"):
                find(name, CHECKPOINT)
        (CHECKPOINT / "code").mkdir()
        (CHECKPOINT / "code" / "elsewhere_of_test.py").write_text(EVIL)
        assert find("elsewhere_of_test:MyTrial", CHECKPOINT).__name__ == "MyTrial"
        (CHECKPOINT / "code" / "elsewhere_of_test.py").unlink()
        (CHECKPOINT / "code").rmdir()
        mine = False
        with pytest.raises(InvalidTrial, match=r"load\(mine\)"):
            find("elsewhere_of_test:MyTrial", CHECKPOINT)
        assert asked[-1] is False
        assert find("elsewhere_of_test:MyTrial", CHECKPOINT, trust=True).__name__ == "MyTrial"
    assert "elsewhere_of_test" not in sys.modules


def test_wrong_arguments_of_a_trial_are_an_error_with_the_call() -> None:
    class Two:
        def __init__(self, context: object, width: int) -> None:
            self.width = width

    trial: Any = Two
    assert make_trial(trial, None, {"width": 2}, call="load(path)").width == 2
    with pytest.raises(InvalidTrial, match=r"Two\(.*width.* missing a required argument: 'width'.*: load\(path\)"):
        make_trial(trial, None, {}, call="load(path)")
    with loading_as("checkpoint.load(mine)"), pytest.raises(InvalidTrial, match=r"load\(mine, trial_kwargs=\{"):
        make_trial(trial, None, {}, call="load(path)")


def test_an_imported_package_does_not_give_access_to_a_checkpoint(project: Path) -> None:
    (project / "checkpoints_of_test" / "__init__.py").touch()
    (project / "checkpoints_of_test" / "fine.py").write_text(TRIAL)
    importlib.import_module("checkpoints_of_test")
    with pytest.raises(UntrustedCheckpoint):
        find("checkpoints_of_test.id_of_test.evil:MyTrial", CHECKPOINT)


def test_a_package_from_elsewhere_is_not_shadowed(project: Path, tmp_path: Path) -> None:
    for directory, code in ((project, EVIL), (tmp_path / "library", "")):
        (directory / "package_of_test").mkdir(parents=True)
        (directory / "package_of_test" / "__init__.py").write_text(code)
    (tmp_path / "library" / "package_of_test" / "trial.py").write_text(TRIAL)
    sys.path.append(str(tmp_path / "library"))
    with pytest.raises(InvalidTrial, match="there is no module"):
        find("package_of_test.gone:MyTrial", CHECKPOINT)
    assert find("package_of_test.trial:MyTrial", CHECKPOINT).__module__ == "package_of_test.trial"


def test_a_symbolic_link_does_not_give_access_to_a_checkpoint(project: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "linked_of_test").symlink_to(CHECKPOINT.absolute())
    sys.path.insert(0, str(tmp_path / "elsewhere"))
    for path in (CHECKPOINT, tmp_path / "elsewhere" / "linked_of_test"):
        with pytest.raises(UntrustedCheckpoint):
            find("linked_of_test.evil:MyTrial", path)


def test_a_class_from_elsewhere_is_found(project: Path, tmp_path: Path) -> None:
    (tmp_path / "library" / "models_of_test").mkdir(parents=True)
    (tmp_path / "library" / "models_of_test" / "trial.py").write_text(TRIAL)
    sys.path.append(str(tmp_path / "library"))
    assert find("models_of_test.trial:MyTrial", CHECKPOINT).__module__ == "models_of_test.trial"


@pytest.mark.parametrize("name", [".evil:T", "evil/../x:T", ":T"])
def test_an_invalid_class_name_is_refused(name: str, project: Path) -> None:
    with pytest.raises(InvalidTrial, match="expected 'module:Class'"):
        find(name, CHECKPOINT)
