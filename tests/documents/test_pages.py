"""A test runs every code block of every page: a test of its own, or else the runner of pages."""

from __future__ import annotations

import re
import shlex
from argparse import ArgumentParser
from pathlib import Path

import pytest

from det_core.cli._program import complete_parser

from .page_runner import LANGUAGES, NOT_RUN, blocks_of, run_page

ROOT = Path(__file__).parents[2]
GENERATED = ROOT / "docs" / "files"
PAGES = {
    str(path.relative_to(ROOT)): path
    for path in sorted([ROOT / "README.md", *(ROOT / "plugins").glob("*/README.md"), *(ROOT / "docs").rglob("*.md")])
    if not path.is_relative_to(GENERATED)
}
OWN_TESTS = {
    "README.md": "plugins/torch/tests/test_readme.py",
    "docs/backends.md": "plugins/testing/tests/test_backend_docs.py",
    "docs/commands.md": "plugins/testing/tests/test_command_docs.py",
    "docs/frameworks.md": "plugins/testing/tests/test_framework_docs.py",
    "docs/launchers.md": "plugins/testing/tests/test_launcher_docs.py",
    "docs/observers.md": "plugins/testing/tests/test_observer_docs.py",
    "docs/sdk.md": "plugins/torch/tests/test_sdk.py",
    "docs/searching.md": "plugins/testing/tests/test_search_method_docs.py",
    "docs/storage.md": "plugins/testing/tests/test_storage_docs.py",
    "docs/start.md": "tests/documents/test_start_page.py",
    "docs/guides/averages.md": "tests/documents/test_guides.py",
    "docs/guides/data.md": "tests/documents/test_guides.py",
    "docs/guides/debug.md": "tests/documents/test_guides.py",
    "docs/guides/distribute.md": "tests/documents/test_guides.py",
    "docs/guides/export.md": "plugins/torch/tests/test_sdk.py",
    "docs/guides/loops.md": "tests/documents/test_guides.py",
    "docs/guides/metrics.md": "tests/documents/test_guides.py",
    "docs/guides/migrate.md": "tests/documents/test_guides.py",
    "docs/guides/notebooks.md": "tests/documents/test_guides.py",
    "docs/guides/optimize.md": "tests/documents/test_guides.py",
    "docs/guides/profile.md": "tests/documents/test_guides.py",
    "docs/guides/resume.md": "tests/documents/test_guides.py",
    "docs/guides/search.md": "tests/documents/test_guides.py",
    "docs/guides/storage.md": "tests/documents/test_guides.py",
    "docs/guides/train.md": "tests/documents/test_guides.py",
    "plugins/jax/README.md": "plugins/jax/tests/test_example.py",
    "plugins/keras/README.md": "plugins/keras/tests/test_trial.py",
    "plugins/torch/README.md": "plugins/torch/tests/test_readme.py",
    "plugins/transformers/README.md": "plugins/transformers/tests/test_callback.py",
}
"""Pages whose blocks need more than the runner of pages, and the tests that run all blocks of these languages."""
SLOW = tuple(f"plugins/{name}/README.md" for name in ("estimator", "optuna", "trackio", "wandb"))
"""Pages that take more than a second. They are tested in ``make test-more`` only."""


def commands() -> list[tuple[str, str]]:
    """Return the command lines of det in blocks of all pages, with the page."""
    found = []
    for name in (*PAGES, "ARCHITECTURE.md", "CONTRIBUTING.md"):
        for block in blocks_of(ROOT / name):
            lines = block.code.replace("\\\n", " ").splitlines() if block.language in ("", "bash") else []
            parts = (part.strip() for line in lines for part in re.split(r" · |\||&&|;", line.partition(" #")[0]))
            found += [(name, re.split(r" [>&]| 2>", part)[0]) for part in parts if re.match(r"det [a-z-]", part)]
    return sorted(set(found))


def marks(name: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.integration, *([pytest.mark.slow] if name in SLOW else [])]


RUN_HERE = [
    pytest.param(name, marks=marks(name), id=name)
    for name, page in PAGES.items()
    if name not in OWN_TESTS and any(block.language not in NOT_RUN for block in blocks_of(page))
]


@pytest.mark.parametrize("name", RUN_HERE)
def test_the_blocks_of_the_page_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    run_page(PAGES[name], tmp_path)


@pytest.mark.parametrize(("name", "test"), OWN_TESTS.items())
def test_own_tests_run_all_languages_of_their_page(name: str, test: str) -> None:
    source = (ROOT / test).read_text()
    assert Path(name).name in source, f"{test} does not read {name}"
    languages = {block.language for block in blocks_of(PAGES[name])} - set(NOT_RUN)
    ignored = sorted(language for language in languages if not re.search(rf'"{language}"|```{language}', source))
    assert ignored == [], f"no test runs these blocks of {name}: let {test} run them, or write them as text"


def test_every_block_has_a_known_language() -> None:
    unknown = [(name, block.language) for name, page in PAGES.items() for block in blocks_of(page)]
    assert [each for each in unknown if each[1] not in LANGUAGES] == []


@pytest.fixture(scope="module")
def parser() -> ArgumentParser:
    return complete_parser()


@pytest.mark.integration
@pytest.mark.parametrize(("name", "line"), commands())
def test_commands_parse(parser: ArgumentParser, name: str, line: str) -> None:
    argv = ["3" if re.fullmatch(r"ID|\$[A-Z]+", word) else word for word in shlex.split(line)[1:]]
    assert parser.parse_args(argv).run


def test_no_page_links_to_a_private_file() -> None:
    links = {name: re.findall(r"\]\(([^)\s]+)\)", page.read_text()) for name, page in PAGES.items()}
    assert [(name, link) for name in links for link in links[name] if re.search(r"/_[a-z]\w*\.py$", link)] == []
