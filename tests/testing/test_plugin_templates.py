"""Distributions that ``det plugins new`` writes are installed, pass their suites unchanged, and are usable."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from det_core.cli import main
from det_core.cli.commands._plugin_templates import TEMPLATES
from tests.testing.documents import snippets
from tests.testing.installed_examples import Run, install_source

pytestmark = pytest.mark.integration

QUICK = {"search_method"}
"""Kinds whose suite takes a few seconds."""
EXPERIMENT = "entrypoint: m:T\nsearcher: {name: single, metric: loss, max_length: {batches: 1}}\n"
SEARCH = "entrypoint: m:T\nhyperparameters: {lr: {type: double, minval: 0, maxval: 1}}\n"


@dataclass(frozen=True)
class Written:
    """Distribution ``det-my-own`` that the command wrote and pip installed."""

    source: Path
    """Directory of the distribution."""
    code: Path
    """Working directory of the modules that ``run`` runs, with the tests of the distribution, but not its package."""
    run: Run


@pytest.fixture(scope="module")
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    directory = tmp_path_factory.mktemp("new")
    source, code = directory / "source", directory / "code"
    assert main(["plugins", "new", request.param.replace("_", "-"), "my-own", str(source)]) == 0
    code.mkdir()
    shutil.copytree(source / "tests", code / "tests")
    shutil.copy(source / "pyproject.toml", code)
    return Written(source, code, install_source(directory, source, code, timeout=280))


kinds = pytest.mark.parametrize(
    "written",
    [pytest.param(kind, marks=() if kind in QUICK else pytest.mark.slow, id=kind) for kind in TEMPLATES],
    indirect=True,
)


@kinds
def test_the_suite_passes_unchanged(written: Written) -> None:
    told = written.run("pytest", "-q", "-p", "no:cacheprovider", "-W", "error")
    assert re.search(r"^\d+ passed(, \d skipped)? in ", told, re.MULTILINE), told
    assert told.endswith("exit code 0")


@kinds
def test_the_plugin_has_no_problem(written: Written) -> None:
    told = written.run("det_core.cli", "plugins", "check", "det-my-own")
    assert told == "1 distribution, 1 plugin: ok\n\nexit code 0"


@kinds
@pytest.mark.slow
def test_the_types_are_complete(written: Written, tmp_path_factory: pytest.TempPathFactory) -> None:
    cache = tmp_path_factory.getbasetemp() / "mypy"  # det-core is checked once
    command = [sys.executable, "-m", "mypy", "--strict", f"--cache-dir={cache}", "det_my_own", "tests"]
    ran = subprocess.run(command, cwd=written.source, capture_output=True, text=True, timeout=280)
    assert ran.returncode == 0, ran.stdout


def train_as_documented(written: Written) -> None:
    (written.code / "model_def.py").write_text(only(written, "python"))
    assert "trial 1: batch 50/50 " in use_config(written, only(written, "yaml"), "run")


def start_as_documented(written: Written) -> None:
    (written.code / "train.py").write_text(only(written, "python"))
    told = written.run("det_core.launch", "my_own", "--slots=2", "--option", "grace=1", "--", "train.py")
    assert told.endswith("exit code 0"), told
    assert re.findall(r"^\[rank=\d\] one of 2$", told, re.MULTILINE) != []
    use_config(written, only(written, "yaml"), "config", "check")


def check_as_documented(written: Written) -> None:
    use_config(written, EXPERIMENT + only(written, "yaml"), "config", "check")


def run_as_documented(written: Written) -> None:
    (written.code / "train.py").write_text(only(written, "python"))
    use_config(written, only(written, "yaml"), "run")
    expected = min(os.nice(0) + 5, 19)  # 19 is the maximum
    assert f"niceness {expected}\n" in written.run("det_core.cli", "trial", "logs", "1")


def search_as_documented(written: Written) -> None:
    assert "my_own: 16 trials" in use_config(written, SEARCH + only(written, "yaml"), "preview-search")


def list_as_documented(written: Written) -> None:
    assert written.run("det_core.cli", "my-own", "--json") == "[]\n\nexit code 0"


USES: dict[str, Callable[[Written], None]] = {
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
def test_the_readme_is_true(written: Written, request: pytest.FixtureRequest) -> None:
    USES[request.node.callspec.id](written)


def only(written: Written, language: str) -> str:
    """Return the only snippet of the README in this language."""
    (snippet,) = snippets(written.source / "README.md", language)
    return snippet


def use_config(written: Written, text: str, *command: str) -> str:
    """Run a command of det with this config, and return the output."""
    (written.code / "const.yaml").write_text(text)
    told = written.run("det_core.cli", *command, "const.yaml")
    assert told.endswith("exit code 0"), told
    return told
