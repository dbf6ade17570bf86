"""The documentation site builds without warnings, and its references contain all public names and commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import references
from api_reference import names_of
from public_api import load_modules

from det_core.plugins import plugin_registry

pytestmark = pytest.mark.integration  # they read all distributions

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def test_the_references_are_up_to_date() -> None:
    assert [str(page.relative_to(ROOT)) for page in references.find_stale(references.pages())] == [], (
        "write the references with: python tools/references.py"
    )


def test_the_command_reference_has_all_commands() -> None:
    page = (DOCS / "reference" / "cli.md").read_text()
    headings = re.findall(r"^##+ det ([\w -]+)$", page, re.MULTILINE)
    assert {heading for heading in headings if " " not in heading} == set(plugin_registry().names("command"))
    assert {"experiment list", "checkpoint gc", "plugins new", "config schema"} <= set(headings)
    assert "- `--limit` `N`: maximum number of rows\n" in page


def test_the_api_reference_has_all_public_names() -> None:
    for modules in load_modules().values():
        for path, module in modules.items():
            page = (DOCS / "reference" / "api" / f"{path}.md").read_text()
            assert [name for name in names_of(module) if not re.search(rf"\b{name}\b", page)] == [], path
    core = (DOCS / "reference" / "api" / "det_core.core.md").read_text()
    assert "def init(\n    *,\n    distributed: DistributedContext | None = None,\n" in core
    assert "- [`ConfigError`](det_core.errors.md#configerror): the config is wrong." in core
    assert "[`PreemptContext.should_preempt`](#preemptcontextshould_preempt)" in core


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_site_builds_without_warnings_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    """The theme takes nine tenths of the time of a page, so it is tried with three, and another one with all."""
    environment = {**os.environ, "http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}

    def build(name: str, *arguments: str) -> Path:
        sphinx = [sys.executable, "-m", "sphinx", "--quiet", "-d", str(tmp_path / "trees")]
        command = [*sphinx, str(DOCS), str(tmp_path / name), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=420, check=False)
        assert done.returncode == 0, done.stderr
        return tmp_path / name

    every = build("every", "-D", "html_theme=basic", "--fail-on-warning", "--keep-going")
    assert "checkpoint_storage.save_trial_best" in (every / "searchindex.js").read_text()
    some = build("some", *(str(DOCS / page) for page in ("index.md", "start.md", "reference/api/det_core.core.md")))
    pages = [*every.rglob("*.html"), *some.rglob("*.html")]
    assert len(pages) > 150
    loaded = re.compile(r"""<(?:script|img|iframe)[^>]+src="(?:https?:)?//|<link[^>]+href="(?:https?:)?//""")
    assert [page for page in pages if loaded.search(page.read_text())] == []
