"""Distributions that ``det plugins new`` writes pass their suites unchanged, and are usable."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import importlib_metadata
import pytest

from det_core.cli import main
from det_core.plugins import KINDS
from plugins.testing.tests.document_parts import snippets
from plugins.testing.tests.plugin_sites import register_example, run_module

pytestmark = pytest.mark.integration

EXAMPLES = Path(__file__).parents[3] / "examples"
REPEATED = {"backend", "launcher"}
"""Kinds whose suites take long, and pass for det's own plugins and for the examples."""
EXPERIMENT = "entrypoint: m:T\nsearcher: {name: single, metric: loss, max_length: {batches: 1}}\n"
SEARCH = "entrypoint: m:T\nhyperparameters: {lr: {type: double, minval: 0, maxval: 1}}\n"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Path]]:
    """Write a distribution of each kind, register it with processes, and return their directories."""
    directory = tmp_path_factory.mktemp("new")
    sources = {kind: directory / kind for kind in KINDS}
    with pytest.MonkeyPatch.context() as patch:
        for kind, source in sources.items():
            assert main(["plugins", "new", kind.replace("_", "-"), f"own-{kind}", str(source)]) == 0
            register_example(source, source)
            patch.syspath_prepend(source)
        yield sources


@pytest.fixture
def source(written: Mapping[str, Path], request: pytest.FixtureRequest) -> Path:
    """Return the directory of the distribution of a kind."""
    return written[request.node.callspec.params["kind"]]


kinds = pytest.mark.parametrize("kind", KINDS)


def test_the_plugins_have_no_problem(written: Mapping[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    for kind in written:
        capsys.readouterr()
        assert main(["plugins", "check", f"det-own-{kind.replace('_', '-')}"]) == 0
        assert capsys.readouterr().out == "1 distribution, 1 plugin: ok\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.soak if kind in REPEATED else ()) for kind in KINDS]
)
def test_the_suite_passes_unchanged(kind: str, source: Path) -> None:
    told = run_module(source, "pytest", "-q", "-p", "no:cacheprovider", "-W", "error")
    assert re.search(r"^\d+ passed(, \d skipped)? in ", told, re.MULTILINE), told
    assert told.endswith("exit code 0")


@pytest.mark.slow
def test_the_types_are_complete(written: Mapping[str, Path], tmp_path: Path) -> None:
    packages = [source / f"det_own_{kind}" for kind, source in written.items()]
    command = [sys.executable, "-m", "mypy", "--strict", f"--cache-dir={tmp_path}", *packages]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert ran.returncode == 0, ran.stdout


@pytest.mark.slow
def test_pip_installs_the_distributions_and_the_examples(written: Mapping[str, Path], tmp_path: Path) -> None:
    for example in EXAMPLES.glob("*_plugin"):
        shutil.copytree(example, tmp_path / example.name, ignore=shutil.ignore_patterns("__pycache__"))
    sources = [*written.values(), *tmp_path.iterdir()]
    site = tmp_path / "site"
    told = run_module(tmp_path, "pip", "install", "-q", "--no-build-isolation", "--no-deps", "--target", site, *sources)
    assert told.endswith("exit code 0"), told
    installed = list(importlib_metadata.distributions(path=[str(site)]))
    assert len(installed) == len(sources) == 2 * len(KINDS)
    for distribution in installed:
        (entry,) = distribution.entry_points.select(group="det")
        module = site / entry.module.replace(".", "/")
        assert module.with_suffix(".py").is_file() or (module / "__init__.py").is_file(), entry
    assert list(site.glob("**/test_*.py")) == []


def train_as_documented(source: Path) -> None:
    (source / "model_def.py").write_text(only(source, "python"))
    assert "trial 1: batch 50/50 " in use_config(source, only(source, "yaml"), "run")


def start_as_documented(source: Path) -> None:
    (source / "train.py").write_text(only(source, "python"))
    told = run_module(source, "det_core.launch", "own_backend", "--slots=2", "--option", "grace=1", "--", "train.py")
    assert told.endswith("exit code 0"), told
    assert re.findall(r"^\[rank=\d\] one of 2$", told, re.MULTILINE) != []
    use_config(source, only(source, "yaml"), "config", "check")


def check_as_documented(source: Path) -> None:
    use_config(source, EXPERIMENT + only(source, "yaml"), "config", "check")


def run_as_documented(source: Path) -> None:
    (source / "train.py").write_text(only(source, "python"))
    use_config(source, only(source, "yaml"), "run")
    expected = min(os.nice(0) + 5, 19)  # 19 is the maximum
    assert f"niceness {expected}\n" in run_module(source, "det_core.cli", "trial", "logs", "1")


def search_as_documented(source: Path) -> None:
    assert "own_search_method: 16 trials" in use_config(source, SEARCH + only(source, "yaml"), "preview-search")


def list_as_documented(source: Path) -> None:
    assert run_module(source, "det_core.cli", "own-command", "--json") == "[]\n\nexit code 0"


USES: dict[str, Callable[[Path], None]] = {
    "framework": train_as_documented,
    "backend": start_as_documented,
    "storage": check_as_documented,
    "launcher": run_as_documented,
    "search_method": search_as_documented,
    "observer": check_as_documented,
    "command": list_as_documented,
}
"""Functions that do what the README says about the use of a plugin, by kind."""


@kinds
@pytest.mark.slow
def test_the_readme_is_true(kind: str, source: Path) -> None:
    USES[kind](source)


def only(source: Path, language: str) -> str:
    """Return the only snippet of the README in this language."""
    (snippet,) = snippets(source / "README.md", language)
    return snippet


def use_config(source: Path, text: str, *command: str) -> str:
    """Run a command of det with this config, and return the output."""
    (source / "const.yaml").write_text(text)
    told = run_module(source, "det_core.cli", *command, "const.yaml")
    assert told.endswith("exit code 0"), told
    return told
