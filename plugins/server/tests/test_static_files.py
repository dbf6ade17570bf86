"""Style sheets, scripts and templates: their size, what is vendored, and that nothing needs an exception of the CSP."""

from __future__ import annotations

import gzip
import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from det_server._rendering import STATIC_DIRECTORY, asset_url

from .serving import ServedSite

TEMPLATES = STATIC_DIRECTORY.parent / "templates"
BUDGET = 80_000
"""Maximum number of bytes of all assets together, each compressed with gzip."""
VENDORED = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uPlot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}
"""SHA-256 of the files of uplot 1.6.32 on npm, by name."""
SCRIPTS = sorted(STATIC_DIRECTORY.glob("*.js"))


def test_vendored_files_are_those_of_the_release() -> None:
    found = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in (STATIC_DIRECTORY / "vendor").iterdir()
    }
    assert found == VENDORED
    assert "MIT License" in (STATIC_DIRECTORY / "vendor" / "uPlot.LICENSE").read_text()


def test_all_assets_together_are_small() -> None:
    sizes = {file.name: len(gzip.compress(file.read_bytes())) for file in STATIC_DIRECTORY.rglob("*") if file.is_file()}
    assert sum(sizes.values()) < BUDGET, sizes


@pytest.mark.parametrize("template", sorted(TEMPLATES.glob("*.html")), ids=lambda file: file.name)
def test_templates_need_no_inline_script_or_style(template: Path) -> None:
    text = template.read_text()
    if template.name == "report.html":  # a file without a server, whose policy has the hash of its only style
        text = text.replace('<style>{% include "report.css" %}</style>', "")
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", text)
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", text))
    assert "http://" not in text and "https://" not in text, "a page asks only its own server"
    unsafe = [
        part
        for part in re.findall(r"{{[^}]*\| *safe[^}]*}}", text)
        if not re.match(r"{{ *' [a-z-]+(=\"[a-z]+\")?' \| safe if ", part)
    ]
    assert not unsafe, "only constants are marked as safe"
    assert "autoescape" not in text


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda file: file.name)
def test_scripts_never_parse_text_as_markup_or_code(script: Path) -> None:
    text = script.read_text()
    assert text.startswith("// @ts-check\n")
    assert not re.search(
        r"innerHTML\s*=|outerHTML\s*=|insertAdjacentHTML|document\.write|\beval\(|new Function|setAttribute\(\"style\"",
        text,
    )
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "") and "https://" not in text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_contrast_and_differ(scheme: str) -> None:
    """The palette has a contrast of 3 to the background, and text of 4.5."""
    light, dark = (STATIC_DIRECTORY / "det.css").read_text().split("@media (prefers-color-scheme: dark)")
    text = light if scheme == "light" else dark.partition("*")[0]
    colors = {name: _rgb(color) for name, color in re.findall(r"--([\w-]+): #(\w+);", text)}
    curves = [colors[f"c{rank}"] for rank in range(10)]
    for color in curves:
        assert _contrast(color, colors["bg"]) >= 3, f"{scheme} {color}"
    for name in ("fg", "soft", "accent", "bad"):
        assert _contrast(colors[name], colors["bg"]) >= 4.5, f"{scheme} {name}"
    assert len(set(curves)) == 10


def _rgb(digits: str) -> tuple[int, int, int]:
    digits = "".join(digit * 2 for digit in digits) if len(digits) == 3 else digits
    return int(digits[:2], 16), int(digits[2:4], 16), int(digits[4:], 16)


def _contrast(one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    """Return the contrast of two colours by WCAG 2.2."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(color: tuple[int, int, int]) -> float:
    linear = [part / 255 / 12.92 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in color]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_urls_of_assets_change_with_their_contents_and_are_kept(local: ServedSite) -> None:
    digest = hashlib.sha256((STATIC_DIRECTORY / "det.css").read_bytes()).hexdigest()
    assert asset_url("det.css") == f"/static/det.css?v={digest[:12]}"
    answer = local.owner.get(asset_url("det.css"))
    assert answer.status == 200
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["content-type"].startswith("text/css")


def test_pages_refer_only_to_assets_that_exist(local: ServedSite) -> None:
    for template in TEMPLATES.glob("*.html"):
        for name in re.findall(r"asset\('([^']+)'\)", template.read_text()):
            assert (STATIC_DIRECTORY / name).is_file(), f"{template.name}: {name}"


@pytest.mark.integration
def test_scripts_pass_their_own_tests() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed; the browser tests run the same scripts")
    tests = Path(__file__).parent / "scripts.test.mjs"
    result = subprocess.run([node, "--test", str(tests)], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
