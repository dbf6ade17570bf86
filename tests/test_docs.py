"""Make targets, files and tests that the documents name exist."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from references import MARK

from tests.documents.page_runner import tomllib

ROOT = Path(__file__).parent.parent
PAGES = sorted(page for page in (ROOT / "docs").rglob("*.md") if not page.is_relative_to(ROOT / "docs/files"))
DOCUMENTS = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *PAGES]
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TEXT = "\n".join(path.read_text().partition(MARK)[0] for path in DOCUMENTS)


def test_make_targets_exist() -> None:
    named = set(re.findall(r"\bmake ([a-z]+)", TEXT))
    assert len(named) > 5
    assert named - set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)) == set()


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as Sphinx and GitHub make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = (heading.lower() for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE))
    return {re.sub(r"[^\w -]", "", heading).replace(" ", "-") for heading in headings}


@pytest.mark.integration
def test_links_and_places_exist() -> None:
    missing = []
    for page in DOCUMENTS:
        for link, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
            target = Path(os.path.normpath(page.parent / link)) if link else page
            if "://" not in link:
                known = target.exists() and (not anchor or target.suffix != ".md" or anchor in anchors(target))
                missing += [] if known else [f"{page.relative_to(ROOT)}: {link}#{anchor}"]
    assert missing == []
    named = re.findall(r"^\| `([a-z0-9_/.]+)", ARCHITECTURE, re.MULTILINE)
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_tests_that_documents_name_exist() -> None:
    """docs/reliability.md names an existing test for each guarantee. Tests in suites are methods."""
    named = re.findall(r"`([\w./]+\.py)::(?:\w+::)?(test_\w+)", TEXT)
    assert len(named) > 80
    missing = [f"{path}::{name}" for path, name in named if f"def {name}(" not in (ROOT / path).read_text()]
    assert missing == []


def test_architecture_names_every_package() -> None:
    packages = [path.name for path in (ROOT / "det_core").iterdir() if (path / "__init__.py").exists()]
    assert [name for name in packages if f"det_core/{name}/" not in ARCHITECTURE] == []


def test_architecture_has_the_layers_that_are_checked() -> None:
    block = re.search(r"```text\n(cli > .*?)```", ARCHITECTURE, re.DOTALL)
    assert block
    layers = next(one["layers"] for one in PROJECT["tool"]["importlinter"]["contracts"] if one["type"] == "layers")
    assert block[1].split() == " > ".join(layers).split()


def test_architecture_has_the_dependencies_and_the_extras() -> None:
    rows = re.findall(r"^\| ([^|`]+) \| [\d.]+ \| .* \| (?:`(\w+)` )?\|$", ARCHITECTURE, re.MULTILINE)
    groups = {"": PROJECT["project"]["dependencies"], **PROJECT["project"]["optional-dependencies"]}
    needed = {
        (re.split(r"[\[>]", library)[0], extra)
        for extra, libraries in groups.items()
        for library in libraries
        if extra not in ("dev", "docs", "testing") and not library.startswith("det-")
    }
    assert {(name, extra) for names, extra in rows for name in names.removesuffix(", with numpy").split(", ")} == needed
