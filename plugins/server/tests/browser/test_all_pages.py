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
@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (390, "dark"),
        pytest.param(390, "light", marks=pytest.mark.soak),
        pytest.param(1280, "dark", marks=pytest.mark.soak),
        pytest.param(1280, "light", marks=pytest.mark.soak),
    ],
)
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
        page.get_by_role("button", name="Show").click()
        page.get_by_role("link", name="transformer on wikitext").click()
        page.get_by_role("link", name="Kill").click()
        assert page.get_by_role("heading", level=1).inner_text().startswith("Kill experiment")
        assert page.get_by_role("button", name="Kill").is_visible()
