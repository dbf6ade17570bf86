"""Pictures of det at work come from real runs, load nothing, and are on a page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
PICTURES = sorted((ROOT / "docs" / "_static" / "screenshots").iterdir())


def text_of(picture: Path) -> str:
    """Return the text of an SVG."""
    return "".join(ElementTree.parse(picture).getroot().itertext()).replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.stem)
def test_each_picture_is_on_a_page_and_loads_nothing(picture: Path) -> None:
    pages = "\n".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    assert f"screenshots/{picture.name})" in pages
    assert text_of(picture)
    assert re.findall(r"url\((?!#)|@import|<(?:image|script)|href=\"(?!#)", picture.read_text()) == []


@pytest.mark.integration
@pytest.mark.soak
@pytest.mark.timeout(900)
def test_the_script_takes_all_pictures(tmp_path: Path) -> None:
    pytest.importorskip("det_torch")
    script = ROOT / "tools" / "screenshots.py"
    done = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True, timeout=840, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == [picture.name for picture in PICTURES]
    assert re.search(r"\$ det run const\.yaml.*\d/1000 .*loss=.*best ", text_of(tmp_path / "run.svg"), re.DOTALL)
    assert re.search(r"\$ det run search\.yaml.*adaptive_asha.*rungs ", text_of(tmp_path / "search.svg"), re.DOTALL)
