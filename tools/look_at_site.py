"""Open every page of the documentation site in a browser, take screenshots, and print what is wrong.

usage: look_at_site.py SITE DIRECTORY [PAGE ...]

SITE is the directory that `make docs` fills. Each PAGE, by default all, is opened at 1280 and 390 pixels in light and
dark, and DIRECTORY gets a screenshot of each. It needs Chromium and playwright. Printed are messages of the console,
failed requests, requests to other hosts, and pages that are wider than the window.
"""

from __future__ import annotations

import functools
import http.server
import sys
import threading
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

_SIZES = {"wide": (1280, 900), "narrow": (390, 844)}
_ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage"]


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Handler that logs no requests."""

    def log_message(self, format: str, *args: object) -> None:
        pass


def look_at_pages(site: Path, directory: Path, pages: list[str]) -> list[str]:
    """Take the screenshots, and return what is wrong."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(QuietHandler, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    problems: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=_ARGUMENTS)
        for size, (width, height) in _SIZES.items():
            for scheme in ("light", "dark"):
                context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
                page = context.new_page()
                watch(page, address, problems)
                for name in pages:
                    page.goto(f"{address}/{name}", wait_until="load")
                    overflow = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
                    if overflow > 0:
                        problems.append(f"{name} is {overflow} pixels too wide at {width}")
                    file = directory / f"{name.removesuffix('.html').replace('/', '_')}-{size}-{scheme}.png"
                    page.screenshot(path=file)
                context.close()
        browser.close()
    server.shutdown()
    return problems


def watch(page: Page, address: str, problems: list[str]) -> None:
    """Record messages of the console, errors and requests of a page."""
    page.on("console", lambda message: problems.append(f"{page.url}: console: {message.text}"))
    page.on("pageerror", lambda error: problems.append(f"{page.url}: {error}"))
    page.on("requestfailed", lambda request: problems.append(f"{page.url}: failed: {request.url}"))
    page.on(
        "request", lambda request: None if request.url.startswith((address, "data:")) else problems.append(request.url)
    )


def main(arguments: list[str]) -> int:
    """Look at the pages, and return the exit code."""
    site, directory = Path(arguments[0]), Path(arguments[1])
    directory.mkdir(parents=True, exist_ok=True)
    found = sorted(str(path.relative_to(site)) for path in site.rglob("*.html") if "_static" not in path.parts)
    problems = look_at_pages(site, directory, arguments[2:] or found)
    print(*sorted(set(problems)), sep="\n")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
