"""All pages in Chromium: no errors, no serious findings of axe, nothing wider than the window, names as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from det_core.tracking import open_store

from ..seeded_pages import page_paths
from ..seeded_store import Seeded, seed_store
from ..serving import ServedSite, local_access, served
from .conftest import SCHEMES, WIDTHS, Visit, Windows

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.integration

LONGEST_PAGE = 5000
"""Maximum height in pixels of pages with 30 rows on a phone."""


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


def test_lists_of_many_columns_scroll_beside_their_names(windows: Windows, seeded: Seeded) -> None:
    names = (
        "lr,width,dropout,optimizer.name,accuracy,training.loss,training.grad_norm,val_loss,metric,curve,trials,started"
    )
    with windows.visit() as visit:
        for path in ("/experiments?columns=", f"/experiments/{seeded.search}?columns="):
            page = visit.open(f"{path}{names}")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
            table = page.get_by_role("region", name="Table of")
            table.evaluate("(one) => one.scrollTo(1000, 0)")
            assert table.evaluate("(one) => one.scrollLeft") > 0
            for name in (table.locator("thead .stick"), table.locator("tbody th").first):
                place = name.bounding_box()
                assert place and place["x"] == 24


def test_tables_are_cards_on_narrow_screens(windows: Windows) -> None:
    with windows.visit(390) as visit:
        page = visit.open("/experiments")
        cell = page.locator("tbody tr td[data-label=trials]").first
        assert cell.evaluate("(one) => getComputedStyle(one, '::before').content") == '"trials"'
        assert page.locator("tbody tr").first.bounding_box()["width"] <= 390  # type: ignore[index]


def test_all_rows_are_selected_on_narrow_screens_with_the_keyboard(windows: Windows, seeded: Seeded) -> None:
    with windows.visit(390) as visit:
        for path in ("/experiments", f"/experiments/{seeded.search}"):
            page = visit.open(path)
            page.get_by_role("button", name="Show").focus()
            for _ in range(3):  # over links, but not over the names of columns, which are hidden
                page.keyboard.press("Tab")
                if page.evaluate("document.activeElement.matches('[data-all]')"):
                    break
            page.keyboard.press("Space")
            boxes = page.locator("td.pick input")
            assert boxes.count() == page.locator("td.pick input:checked").count() > 1
            assert page.get_by_text("select all").bounding_box()["width"] > 40  # type: ignore[index]
            page.keyboard.press("Tab")
            assert page.evaluate("document.activeElement === document.querySelector('td.pick input')")


@pytest.fixture(scope="module")
def thirty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServedSite, int]]:
    """Serve 30 experiments, of which one has 30 trials, and yield its id."""
    with open_store(f"sqlite:///{tmp_path_factory.mktemp('thirty')}/det.db") as store:
        search = seed_store(store, trials=30, batches=640).search
        for number in range(30 - store.count_experiments()):
            store.create_experiment(config={"name": f"experiment {number}", "labels": ["a-label"]}, owner="ada")
        with served(store, local_access) as site:
            yield site, search


def test_pages_of_thirty_rows_are_short_on_phones(browser: Browser, thirty: tuple[ServedSite, int]) -> None:
    site, search = thirty
    measured = site.store.trials(search)[0].id
    heights = {}
    with Windows(browser, site).visit(390) as visit:
        for path in (
            "/experiments",
            "/experiments?columns=metric,curve,trials,took,started,owner,lr,val_loss&group=owner",
            f"/experiments/{search}",
            f"/experiments/{search}?columns=lr,width,dropout,optimizer.name,accuracy,training.loss,training.grad_norm",
            f"/experiments/{search}/search",
            f"/trials/{measured}",
        ):
            page = visit.open(path)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
            heights[path] = page.evaluate("document.documentElement.scrollHeight")
        assert max(heights.values()) <= LONGEST_PAGE, heights


def test_lists_are_sorted_and_filtered_on_phones(browser: Browser, thirty: tuple[ServedSite, int]) -> None:
    site, search = thirty
    expected = [one.trial.id for one in site.store.trial_results(search, where="lr < 0.01", sort_by="lr")]
    with Windows(browser, site).visit(390, has_touch=True) as visit:
        page = visit.open(f"/experiments/{search}")
        form = page.get_by_role("search")
        form.get_by_label("Filter").fill("lr < 0.01")
        form.get_by_label("Sort by").fill("lr")
        form.get_by_role("button", name="Show").tap()
        page.wait_for_url("**order=lr*")
        shown = page.locator("#trials tbody tr").evaluate_all("(rows) => rows.map((one) => Number(one.dataset.trial))")
        assert shown == expected and 0 < len(shown) < 30


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
