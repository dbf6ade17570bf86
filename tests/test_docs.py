"""Commands, make targets, files and tests that the documents name exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from det_core.cli import main

ROOT = Path(__file__).parent.parent
PAGES = sorted(page for page in (ROOT / "docs").rglob("*.md") if not page.is_relative_to(ROOT / "docs/files"))
DOCUMENTS = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *PAGES]
TEXT = "\n".join(path.read_text() for path in DOCUMENTS)


def blocks() -> str:
    """Return the text of all fenced blocks that name no language."""
    fenced = re.findall(r"^```([^\n]*)\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    return "\n".join(code for language, code in fenced if not language)


COMMANDS = sorted(
    {
        match.group()
        for line in blocks().splitlines()
        for part in line.partition("#")[0].split("·")
        if (match := re.match(r"det [a-z-]+( [a-z-]+(?= |$))?", part.strip()))
    }
)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_exist(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [word for word in command.split()[1:] if "." not in word]
    assert main([*words, "--help"]) == 0
    assert "usage: det" in capsys.readouterr().out


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\bmake ([a-z]+)", TEXT))))
def test_make_targets_exist(target: str) -> None:
    subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True, timeout=30)


def test_links_and_places_exist() -> None:
    links = {page: re.findall(r"\]\(([^)#]+)\)", page.read_text()) for page in DOCUMENTS}
    linked = [page.parent / link for page, found in links.items() for link in found if "://" not in link]
    named = re.findall(r"^\| `([a-z0-9_/.]+)", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    missing = [place for place in [*linked, *(ROOT / name for name in named)] if not place.exists()]
    assert missing == []


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
