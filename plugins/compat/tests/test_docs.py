"""Every row of docs/migrating.md is correct."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from determined import _old_names
from determined.launch import _command

from det_core.config import parse_config
from det_core.launch import __main__ as launch

from .test_names import find, skip_without

DOCUMENT = Path(__file__).parents[3] / "docs" / "migrating.md"
DIRECTORIES = Path(__file__).with_name("directories")


def rows(heading: str) -> list[list[str]]:
    """Return the cells of a section's table, without quotes."""
    _, section = DOCUMENT.read_text().split(f"\n## {heading}", 1)
    lines = re.findall(r"^\| (.*) \|$", section.split("\n## ")[0], re.MULTILINE)
    return [[cell.strip("`") for cell in line.split(" | ")] for line in lines[1:]]


def test_each_directory_is_listed_once() -> None:
    listed = [directory for *_, directory in rows("Trials and scripts")]
    assert sorted(listed) == sorted(path.name for path in DIRECTORIES.iterdir() if path.name[0].isalpha())


@pytest.mark.integration
@pytest.mark.parametrize(("old", "now"), [row[1:] for row in rows("Names")])
def test_old_names_are_the_new_objects(old: str, now: str) -> None:
    skip_without(now)
    theirs, ours = find(old), find(now)
    assert theirs is ours or set(theirs.__all__) >= set(ours.__all__)  # modules are different objects with these names


@pytest.mark.parametrize(("old", "read"), [row[1:] for row in rows("Configs")])
def test_old_configs_are_read_as_listed(old: str, read: str) -> None:
    one, other = (complete(yaml.safe_load(text)) for text in (old, read))
    assert one != other
    assert parse_config(one) == parse_config(other)


def complete(part: dict[str, Any]) -> dict[str, Any]:
    searcher = {"name": "single", "metric": "loss", **part.get("searcher", {})}
    if len(searcher) == 2:
        searcher["max_length"] = {"batches": 1}
    return {"entrypoint": "model_def:Trial", "reproducibility": {"experiment_seed": 1}, **part, "searcher": searcher}


@pytest.mark.parametrize(("old", "now"), [row[1:] for row in rows("Entrypoints")])
def test_old_and_new_entrypoints_start_the_same_workers(old: str, now: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[str, list[str]]] = []

    def start(name: str, worker: list[str], *_: Any, **__: Any) -> int:
        started.append((name, worker))
        return 0

    for module in (_command, launch):
        monkeypatch.setattr(module, "start_workers", start)
    _, _, program, *arguments = shlex.split(old)
    _command.run_launcher(program.rpartition(".")[2], arguments)
    launch.main(shlex.split(now)[3:])
    one, other = started
    assert one == other
    assert one[1][0] == sys.executable


@pytest.mark.parametrize("heading", ["Planned", "Not supported"])
def test_missing_names_are_those_of_the_table(heading: str) -> None:
    table = {"Planned": _old_names.PLANNED_NAMES, "Not supported": _old_names.UNSUPPORTED_NAMES}[heading]
    assert dict(rows(heading)) == table


@pytest.mark.parametrize("name", [*_old_names.PLANNED_NAMES, *_old_names.UNSUPPORTED_NAMES])
def test_a_missing_name_is_an_error_with_the_advice_of_the_table(name: str) -> None:
    advice = {**_old_names.PLANNED_NAMES, **_old_names.UNSUPPORTED_NAMES}[name]
    module, _, attribute = name.replace("*", "anything").rpartition(".")
    package, _, last = module.rpartition(".")
    code = (
        f"from {package} import {last}\n{last}.{attribute}"
        if last[0].isupper()
        else f"from {module} import {attribute}"
    )
    with pytest.raises((ImportError, AttributeError)) as error:
        exec(code)
    assert str(error.value).endswith(advice)


def test_every_old_checkpoint_of_tensorflow_is_listed_with_its_files() -> None:
    listed: dict[str, list[str]] = {"keras": [], "estimator": []}
    files: dict[str, str] = {}
    for trial, names, releases, *_ in rows("TensorFlow"):
        old = DOCUMENT.parents[1] / "plugins" / trial.lower() / "tests" / "old"
        files["the same"] = name = files["the same"] if names.startswith("the same") else names
        more = re.findall(r"`(\w+\.json)`?", names)
        for release in releases.split(", "):
            listed[trial.lower()].append(release)
            assert any((old / release).glob(name)), (release, name)
            assert {one for one in ("load_data.json", "metadata.json") if (old / release / one).exists()} >= {*more}
    for trial, releases in listed.items():
        old = DOCUMENT.parents[1] / "plugins" / trial / "tests" / "old"
        assert sorted(releases) == sorted(path.name for path in old.iterdir() if path.is_dir())
