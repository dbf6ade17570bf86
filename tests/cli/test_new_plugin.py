"""The command ``det plugins new``: names, refusals, and the files that it writes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from det_core.cli.commands._plugin_templates import (
    _DIRECTORY,
    TEMPLATES,
    PluginNames,
    compatible_versions,
    render_files,
)
from det_core.package_commands import package_command
from det_core.plugins import KINDS

from .conftest import Det

COMMON = {".github/workflows/test.yml", "CHANGELOG.md", "README.md", "pyproject.toml", "tests/test_compliance.py"}


@pytest.fixture(autouse=True)
def _working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, core_alone: None) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def here(tmp_path: Path) -> set[Path]:
    """Return what the working directory contains before the test."""
    return set(tmp_path.rglob("*"))


def test_every_template_belongs_to_a_kind() -> None:
    assert TEMPLATES.keys() <= KINDS.keys()
    assert {path.name for path in _DIRECTORY.iterdir()} == {"common", *TEMPLATES}


@pytest.mark.parametrize("kind", TEMPLATES)
def test_a_distribution_is_written(det: Det, kind: str) -> None:
    result = det("plugins", "new", kind.replace("_", "-"), "My_Own", "there")
    package = Path("there", "det_my_own")
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines()[1:] == [
        "  cd there",
        "  pip install -e '.[test]'",
        "  pytest",
        "  det plugins check det-my-own",
    ]
    written = {path.relative_to("there").as_posix() for path in Path("there").rglob("*") if path.is_file()}
    assert written >= {*COMMON, "det_my_own/__init__.py", "det_my_own/plugin.py", "det_my_own/py.typed"}
    name = "my-own" if kind == "command" else "my_own"
    assert f'name="{name}"' in (package / "plugin.py").read_text()


@pytest.mark.parametrize(
    ("text", "distribution", "package"),
    [
        ("vault2", "det-vault2", "det_vault2"),
        ("My_Store", "det-my-store", "det_my_store"),
        ("a.b--c", "det-a-b-c", "det_a_b_c"),
        ("det-mine", "det-mine", "det_mine"),
        ("class", "det-class", "det_class"),
    ],
)
def test_names_are_normalized(det: Det, text: str, distribution: str, package: str) -> None:
    document = det("plugins", "new", "storage", text, "--json").json
    assert (document["distribution"], document["kind"]) == (distribution, "storage")
    assert document["directory"] == str(Path(distribution).absolute())
    assert f"{package}/plugin.py" in document["files"]
    assert document["next"][0] == f"cd {distribution}"


@pytest.mark.parametrize("text", ["", "3d", "a-", "_a", "a b", "a/b", "../a", "bär", "det-", "det-3d", "a\n", "$x"])
def test_other_names_are_refused(det: Det, here: set[Path], text: str) -> None:
    result = det("plugins", "new", "storage", text)
    assert (result.code, result.out) == (2, "")
    assert "expected letters, digits" in result.err
    assert set(Path.cwd().rglob("*")) == here


CLASHES = {
    ("storage", "shared-fs"): ("the storage 'shared_fs' is installed", "choose another NAME"),
    ("search-method", "grid"): ("the search method 'grid' is installed",),
    ("search_method", "random"): ("the search method 'random' is installed",),
    ("command", "Preview_Search"): ("the command 'preview-search' is installed",),
    ("storage", "s3"): ("det-storage-s3 offers the storage 's3'", package_command("install", "det-storage-s3")),
    ("command", "torch"): ("det-torch is a distribution of det", "such as my-torch"),
    ("storage", "core"): ("det-core", "is installed", "such as my-core"),
    ("storage", "left-behind"): ("another det_left_behind", "left_behind.py", "remove it"),
}


@pytest.mark.parametrize(("kind", "name"), CLASHES)
def test_names_of_others_are_refused(
    det: Det, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "det_left_behind.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "site")
    before = set(tmp_path.rglob("*"))
    result = det("plugins", "new", kind, name)
    assert result.code == 1
    assert [words for words in CLASHES[kind, name] if words not in result.err] == []
    assert set(tmp_path.rglob("*")) == before


def test_only_a_new_or_empty_directory_is_written_to(det: Det, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").touch()
    (tmp_path / "file").touch()
    before = set(tmp_path.rglob("*"))
    for directory, reason in {
        "full": "contains mine.txt; expected a new or empty directory",
        "file": "is a file; expected a new or empty directory",
        "no/such": "no does not exist; type: mkdir -p",
    }.items():
        result = det("plugins", "new", "command", "mine", directory)
        assert (result.code, reason in result.err) == (1, True), result.err
    assert set(tmp_path.rglob("*")) == before


def test_the_working_directory_is_filled_if_it_is_empty(
    det: Det, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert det("plugins", "new", "command", "mine", ".").code == 0
    assert {path.name for path in Path.cwd().iterdir()} == {
        *{path.split("/")[0] for path in COMMON},
        "det_mine",
    }


@pytest.mark.parametrize("directory", ["new", "empty"])
def test_a_failed_write_leaves_nothing(
    det: Det, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directory: str
) -> None:
    (tmp_path / "empty").mkdir()
    before = set(tmp_path.rglob("*"))
    write, written = Path.write_text, []

    def fill_up(path: Path, text: str, **options: Any) -> int:
        written.append(path)
        if len(written) == 3:
            raise OSError(28, "No space left on device")
        return write(path, text, **options)

    monkeypatch.setattr(Path, "write_text", fill_up)
    result = det("plugins", "new", "command", "mine", directory)
    assert (result.code, "No space left on device" in result.err) == (1, True)
    assert set(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("arguments", [(), ("storage",), ("stroage", "mine")])
def test_what_is_missing_or_wrong_is_named_with_a_list_of_kinds(det: Det, arguments: tuple[str, ...]) -> None:
    result = det("plugins", "new", *arguments)
    assert result.code == 2
    lines = result.err.splitlines()
    for kind, template in TEMPLATES.items():
        [line] = (line for line in lines if re.match(rf"  {kind.replace('_', '-')} ", line))
        assert line.endswith(template.summary)


@pytest.mark.parametrize(
    ("version", "expected"), [("0.1.0", ">=0.1,<0.2"), ("0.12.3.dev1", ">=0.12,<0.13"), ("1.4.2", ">=1.4,<2")]
)
def test_the_range_of_versions_follows_the_contract(version: str, expected: str) -> None:
    assert compatible_versions(version) == expected


def test_examples_depend_on_the_same_range() -> None:
    for kind, template in TEMPLATES.items():
        project = Path(__file__).parents[2] / "examples" / f"{kind}_plugin" / "pyproject.toml"
        assert f"\ndependencies = [{template.requirements}]\n" in project.read_text()


@pytest.mark.parametrize("kind", TEMPLATES)
def test_the_workflow_and_the_document_are_complete(kind: str) -> None:
    files = render_files(PluginNames.parse(kind, "my-own"))
    workflow = yaml.safe_load(files[".github/workflows/test.yml"])
    steps = workflow["jobs"]["test"]["steps"]
    assert [step.get("uses", step.get("run")).partition("@")[0] for step in steps] == [
        "actions/checkout",
        "actions/setup-python",
        "pip install -e '.[test]'",
        "pytest",
        "det plugins check det-my-own",
    ]
    assert steps[1]["with"]["python-version"] == "${{ matrix.python }}"
    sections = re.findall(r"^## (\w+)$", files["README.md"], re.MULTILINE)
    assert sections == ["Install", "Use", "Test", "Publish"]
    assert Path(__file__).parents[2].joinpath(TEMPLATES[kind].page).is_file()
    assert not any(re.search(r"\$[a-z{](?!\{)", text) for text in files.values())


@pytest.mark.integration
@pytest.mark.parametrize("arguments", [("check", "--extend-select=I,UP,B,N,RUF,PTH,RET,C4"), ("format", "--check")])
def test_the_code_is_formatted_whatever_the_name(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    for kind in TEMPLATES:
        for name in ("a", "zoo", "a-name-of-many-letters"):
            for file, text in render_files(PluginNames.parse(kind, name)).items():
                path = tmp_path / f"{kind}-{name}" / file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
    command = [sys.executable, "-m", "ruff", *arguments, "--no-cache", tmp_path]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stdout + ran.stderr
