"""All pages in Chromium: no errors, no serious findings of axe, nothing wider than the window, names as text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from ..seeded_pages import page_paths
from ..seeded_store import Seeded
from .conftest import SCHEMES, WIDTHS, Visit, Windows

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.integration


def _check(visit: Visit, path: str, find_violations: Callable[[Page], list[str]]) -> None:
    page = visit.open(path)
    if "999999" in path:
        visit.problems.clear()  # the browser itself logs the status 404
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{path} is wider than the window"
    assert find_violations(page) == [], path
    assert page.locator("img").count() == 0


def test_the_main_pages_are_right_on_wide_and_narrow_screens(
    windows: Windows, seeded: Seeded, find_violations: Callable[[Page], list[str]]
) -> None:
    paths = ["/experiments", f"/experiments/{seeded.search}", f"/trials/{seeded.hostile_trial}"]
    for width, scheme in zip(WIDTHS, SCHEMES, strict=True):
        with windows.visit(width, scheme) as visit:
            for path in paths:
                _check(visit, path, find_violations)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_is_right(
    windows: Windows, seeded: Seeded, find_violations: Callable[[Page], list[str]], width: int, scheme: str
) -> None:
    with windows.visit(width, scheme) as visit:
        for path in page_paths(seeded):
            _check(visit, path, find_violations)


def test_tables_are_cards_on_narrow_screens(windows: Windows) -> None:
    with windows.visit(390) as visit:
        page = visit.open("/experiments")
        cell = page.locator("tbody tr td[data-label=trials]").first
        assert cell.evaluate("(one) => getComputedStyle(one, '::before').content") == '"trials"'
        assert page.locator("tbody tr").first.bounding_box()["width"] <= 390  # type: ignore[index]


def test_pages_work_without_scripts(windows: Windows, seeded: Seeded) -> None:
    with windows.visit(java_script_enabled=False) as visit:
        page = visit.page
        page.goto(f"{visit.base}/experiments")
        page.get_by_label("Name").fill("wikitext")
        page.get_by_role("button", name="Filter").click()
        page.get_by_role("link", name="transformer on wikitext").click()
        page.get_by_role("link", name="Kill").click()
        assert page.get_by_role("heading", level=1).inner_text().startswith("Kill experiment")
        assert page.get_by_role("button", name="Kill").is_visible()


def test_colours_contrast_and_differ(windows: Windows) -> None:
    """The palette has a contrast of 3 to the background, and text of 4.5."""
    for scheme in SCHEMES:
        with windows.visit(scheme=scheme) as visit:
            page = visit.open("/plugins")
            names = ["bg", "fg", "soft", "accent", "bad", *(f"c{rank}" for rank in range(10))]
            colors = {
                name: _rgb(page.evaluate(f"getComputedStyle(document.documentElement).getPropertyValue('--{name}')"))
                for name in names
            }
            for name, color in colors.items():
                least = 3.0 if name.startswith("c") else 4.5
                assert name == "bg" or _contrast(color, colors["bg"]) >= least, f"{scheme} {name}"
            curves = [colors[f"c{rank}"] for rank in range(10)]
            assert len(set(curves)) == 10


def _rgb(text: str) -> tuple[int, int, int]:
    digits = text.strip().removeprefix("#")
    digits = "".join(digit * 2 for digit in digits) if len(digits) == 3 else digits
    return int(digits[:2], 16), int(digits[2:4], 16), int(digits[4:], 16)


def _contrast(one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    """Return the contrast of two colours by WCAG 2.2."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(color: tuple[int, int, int]) -> float:
    linear = [part / 255 / 12.92 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in color]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
