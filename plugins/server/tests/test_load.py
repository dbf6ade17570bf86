"""Many workers report while many pages are open: nothing is lost or doubled.

``make soak`` runs fifty workers and twenty pages for ten minutes, and then also requires that pages answer within a
second and that the memory stays flat.
"""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack

import psutil
import pytest
from det_testing import is_soak

from det_core.interfaces.tracking import TrackingStore

from .loading import RATE, Pages, add_trials, check_records, reporters
from .serving import LIMIT, Client, ServerProcess, running_server, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SECONDS, WORKERS, PROCESSES, PAGES = (600, 50, 5, 20) if is_soak() else (9, 20, 2, 8)
LARGEST_GROWTH = 32 << 20
"""Bytes by which the server's memory may grow from a third of the time to its end."""


@pytest.fixture
def trials(store: TrackingStore) -> list[int]:
    return add_trials(store, WORKERS)


def address_of(server: ServerProcess) -> tuple[str, Client]:
    """Return the URL of a server, and a browser that has followed its link."""
    cookie = server.client.get(f"/?token={server.token}").cookie
    assert cookie
    return server.link.partition("/?")[0], server.client.with_headers(Cookie=cookie)


@pytest.mark.campaign
@pytest.mark.timeout(SECONDS + 240)
def test_no_report_is_lost_while_pages_are_open(
    store: TrackingStore, trials: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = store.trial(trials[0]).experiment_id
    with running_server() as server:
        url, browser = address_of(server)
        process = psutil.Process(server.process.pid)
        with reporters(url, trials, PROCESSES) as counts, Pages(browser, experiment, trials, PAGES) as pages:
            begin = time.monotonic()
            wait_for(lambda: time.monotonic() - begin > SECONDS / 3, SECONDS)
            early = process.memory_info().rss
            wait_for(lambda: time.monotonic() - begin > SECONDS and min(pages.updates) > 0, SECONDS + LIMIT)
            late, spent = process.memory_info().rss, sum(process.cpu_times()[:2])
    check_records(store, trials, counts)
    assert pages.failures == []
    slowest = statistics.quantiles(pages.seconds, n=100)[98]
    with capsys.disabled():
        print(
            f"\n{sum(counts.values()) / SECONDS:.0f} reports and {len(pages.seconds) / SECONDS:.1f} pages a second: "
            f"99 % of pages within {slowest:.2f} s, memory {early >> 20} to {late >> 20} MB, "
            f"{spent / SECONDS:.0%} of a core, a page drew {min(pages.updates) / SECONDS:.2f} updates a second or more"
        )
    if is_soak():
        assert late - early <= LARGEST_GROWTH
        assert min(pages.updates) >= SECONDS / 2
        assert sum(counts.values()) >= 0.9 * WORKERS * RATE * SECONDS
        assert slowest < 1


def test_a_killed_server_neither_loses_nor_doubles_a_call(store: TrackingStore, trials: list[int]) -> None:
    def reported() -> int:
        return store.trial(trials[-1]).steps_completed

    with ExitStack() as running:
        server = running.enter_context(running_server())
        url, _ = address_of(server)
        with reporters(url, trials, PROCESSES) as counts:
            for _ in range(3):
                wait_for(lambda: reported() > 0)
                server.process.kill()
                server.process.wait(LIMIT)
                before = reported()
                server = running.enter_context(running_server("--port", url.rpartition(":")[2]))
                wait_for(lambda before=before: reported() > before)  # type: ignore[misc]
    check_records(store, trials, counts)
