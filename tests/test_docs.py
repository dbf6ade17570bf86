"""Make targets, files and tests that the documents name exist."""

from __future__ import annotations

import os
import re
from pathlib import Path

from references import MARK

ROOT = Path(__file__).parent.parent
PAGES = sorted(page for page in (ROOT / "docs").rglob("*.md") if not page.is_relative_to(ROOT / "docs/files"))
DOCUMENTS = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *PAGES]
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


def test_links_and_places_exist() -> None:
    missing = []
    for page in DOCUMENTS:
        for link, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
            target = Path(os.path.normpath(page.parent / link)) if link else page
            if "://" not in link:
                known = target.exists() and (not anchor or target.suffix != ".md" or anchor in anchors(target))
                missing += [] if known else [f"{page.relative_to(ROOT)}: {link}#{anchor}"]
    assert missing == []
    named = re.findall(r"^\| `([a-z0-9_/.]+)", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_tests_that_documents_name_exist() -> None:
    """docs/reliability.md names an existing test for each guarantee. Tests in suites are methods."""
    named = re.findall(r"`([\w./]+\.py)::(?:\w+::)?(test_\w+)", TEXT)
    assert len(named) > 80
    missing = [f"{path}::{name}" for path, name in named if f"def {name}(" not in (ROOT / path).read_text()]
    assert missing == []


def test_architecture_names_every_package() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    packages = [path.name for path in (ROOT / "det_core").iterdir() if (path / "__init__.py").exists()]
    assert [name for name in packages if f"det_core/{name}/" not in text] == []
