"""One Chromium for all browser tests, over one seeded store."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from det_core.tracking import open_store

from ..seeded_store import Seeded, seed_store
from ..serving import LIMIT, ServedSite, local_access, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

AXE = Path(__file__).parents[4] / ".cache/axe/axe.min.js"
AXE_SHA256 = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
"""Digest of axe.min.js of axe-core 4.14.1, which ``make .cache/axe/axe.min.js`` fetches from npm."""
WIDTHS = (1280, 390)
SCHEMES = ("light", "dark")


def _skip(reason: str) -> None:
    """Skip, except in CI, where everything must be there."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@dataclass
class Visit:
    """A browser window with the server's cookie, and what went wrong in it."""

    page: Page
    base: str
    problems: list[str] = field(default_factory=list)

    def open(self, path: str) -> Page:
        """Open a page, and wait until everything that is in view is drawn."""
        self.page.goto(f"{self.base}{path}", wait_until="load")
        self.wait_until_drawn()
        return self.page

    def wait_until_live(self) -> None:
        """Wait until the page has received its rows, so that it shows all later changes."""
        self.page.wait_for_function("() => window.hasRows", timeout=LIMIT * 1000)

    def wait_until_drawn(self) -> None:
        waiting = """() => [...document.querySelectorAll('.chart[data-src]')].every(
            (one) => one.dataset.state || one.getBoundingClientRect().top > innerHeight + 200)
            && !document.querySelector('#search:not([data-state=drawn])')"""
        self.page.wait_for_function(waiting, timeout=LIMIT * 1000)


@dataclass
class Windows:
    """Opener of browser windows on a server."""

    browser: Browser
    site: ServedSite

    @contextmanager
    def visit(self, width: int = 1280, scheme: str = "light", **options: Any) -> Iterator[Visit]:
        """Open a window, and check at the end that the console had no errors."""
        context = self.browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme=scheme, reduced_motion="reduce", **options
        )
        name, _, value = self.site.owner.headers["Cookie"].partition("=")
        context.add_cookies([{"name": name, "value": value, "url": self.site.site.url}])
        page = context.new_page()
        page.set_default_timeout(LIMIT * 1000)
        page.add_init_script("addEventListener('det:rows', () => (window.hasRows = true), true)")
        visit = Visit(page, self.site.site.url)
        page.on(
            "console",
            lambda message: visit.problems.append(message.text) if message.type in ("error", "warning") else None,
        )
        page.on("pageerror", lambda error: visit.problems.append(str(error)))
        page.on("dialog", lambda dialog: visit.problems.append(f"a script ran: {dialog.message}"))
        page.on(
            "request",
            lambda request: (
                None if request.url.startswith((visit.base, "blob:")) else visit.problems.append(request.url)
            ),
        )
        try:
            yield visit
            assert not visit.problems
        finally:
            context.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    sync_api = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        _skip("chromium is not installed; to install it: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        )
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def served_seed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServedSite, Seeded]]:
    """Serve a seeded store. Tests may add to the running experiment only."""
    directory = tmp_path_factory.mktemp("seeded")
    with open_store(f"sqlite:///{directory}/det.db") as store:
        ids = seed_store(store, trials=16, batches=640)
        with served(store, local_access) as site:
            yield site, ids


@pytest.fixture
def windows(browser: Browser, served_seed: tuple[ServedSite, Seeded]) -> Windows:
    return Windows(browser, served_seed[0])


@pytest.fixture
def seeded(served_seed: tuple[ServedSite, Seeded]) -> Seeded:
    return served_seed[1]


@pytest.fixture(scope="session")
def find_violations() -> Callable[[Page], list[str]]:
    """Return a function that returns the serious findings of axe on a page."""
    if not AXE.is_file():
        _skip(f"{AXE} is missing; to fetch it: make {AXE.relative_to(AXE.parents[2])}")
    script = AXE.read_text()
    assert hashlib.sha256(script.encode()).hexdigest() == AXE_SHA256

    def find(page: Page) -> list[str]:
        page.evaluate(script)
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{one['id']}: {one['help']}: {[node['html'][:200] for node in one['nodes'][:3]]}"
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
        ]

    return find
