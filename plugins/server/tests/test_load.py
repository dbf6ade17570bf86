"""Many workers report while many pages are open: nothing is lost or doubled.

``make soak`` runs fifty workers and twenty pages for ten minutes, and then also requires that pages answer within a
second and that the memory stays flat.
"""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from det_core.interfaces.tracking import TrackingStore
from det_core.testing import is_soak

from .serving import LIMIT, Answer, Client, ServerProcess, running_server, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SECONDS, WORKERS, PROCESSES, PAGES = (600, 50, 5, 20) if is_soak() else (9, 20, 2, 8)
RATE = 20
"""Reports per second of a worker."""
PERIOD = 2.0
"""Seconds after which a page asks for something again."""
LARGEST_GROWTH = 32 << 20
"""Bytes by which the server's memory may grow from a third of the time to its end."""


@pytest.fixture
def trials(store: TrackingStore) -> list[int]:
    experiment = store.create_experiment(config={"name": "load", "searcher": {"metric": "loss"}})
    ids = [store.create_trial(experiment.id, hparams={"lr": 0.1 * n}, seed=n).id for n in range(WORKERS)]
    for trial in ids:
        store.start_run(trial, allocation_id=f"load-{trial}")
    return ids


class Pages:
    """Open pages: each draws what its live updates announce, and its reader opens something every two seconds."""

    def __init__(self, browser: Client, experiment: int, trials: list[int]) -> None:
        self.seconds: list[float] = []
        """Time that each request took."""
        self.updates = [0] * PAGES
        """Number of live updates with new reports that each page has drawn."""
        self.failures: list[str] = []
        self._browser = browser
        self._curves = f"/data/curves?trials={','.join(map(str, trials[:10]))}&group=training&metric=loss"
        self._paths = ["/experiments", f"/experiments/{experiment}", f"/trials/{trials[0]}", self._curves]
        self._live = f"/live?experiments={experiment}&trials={','.join(map(str, trials[:20]))}"
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=target, args=(n,)) for n in range(PAGES) for target in (self._read, self._follow)
        ]

    def __enter__(self) -> Pages:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(LIMIT)
        assert not any(thread.is_alive() for thread in self._threads)

    def _read(self, number: int) -> None:
        paths = itertools.cycle(self._paths)
        self._stopped.wait(number * PERIOD / PAGES)
        while not self._stopped.is_set():
            begin = time.monotonic()
            self._get(next(paths))
            self._stopped.wait(max(0.0, begin + PERIOD - time.monotonic()))

    def _follow(self, number: int) -> None:
        drawn = 0
        with self._browser.stream(self._live) as lines:
            while not self._stopped.is_set():
                if next(lines, "") == "event: metrics":
                    answer = self._get(f"{self._curves}&after={drawn}")
                    drawn = min(max(one["x"], default=drawn) for one in answer.json["series"])
                    self.updates[number] += 1

    def _get(self, path: str) -> Answer:
        begin = time.monotonic()
        answer = self._browser.get(path)
        self.seconds.append(time.monotonic() - begin)
        if answer.status != 200:
            self.failures.append(f"{path}: {answer.status} {answer.text[:500]}")
        return answer


@contextmanager
def reporters(url: str, trials: list[int]) -> Iterator[dict[int, int]]:
    """Let all trials report during the block. The dictionary then has the number of reports of each trial."""
    counts: dict[int, int] = {}
    size = len(trials) // PROCESSES
    script = Path(__file__).parent / "load_reporters.py"
    with ExitStack() as started:
        processes = []
        for begin in range(0, len(trials), size):
            command = [sys.executable, script, url, str(RATE), *map(str, trials[begin : begin + size])]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            started.callback(process.kill)
            processes.append(process)
        for process in processes:
            assert process.stdout and process.stdout.readline() == "ready\n"
        yield counts
        for process in processes:
            out, _ = process.communicate(timeout=LIMIT * 3)
            assert process.returncode == 0
            counts.update({int(trial): count for trial, count in json.loads(out).items()})


def check_records(store: TrackingStore, counts: dict[int, int]) -> None:
    """Check that the store has each report and each line exactly once."""
    assert len(counts) == WORKERS
    for trial, count in counts.items():
        assert [one.steps_completed for one in store.metrics(trial)] == list(range(1, count + 1))
        lines = [int(line.log.removeprefix("step ")) for line in store.logs(trial)]
        assert lines == sorted(set(lines)) and lines[-1] == count


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
        with reporters(url, trials) as counts, Pages(browser, experiment, trials) as pages:
            begin = time.monotonic()
            wait_for(lambda: time.monotonic() - begin > SECONDS / 3, SECONDS)
            early = process.memory_info().rss
            wait_for(lambda: time.monotonic() - begin > SECONDS and min(pages.updates) > 0, SECONDS + LIMIT)
            late, spent = process.memory_info().rss, sum(process.cpu_times()[:2])
    check_records(store, counts)
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
        with reporters(url, trials) as counts:
            for _ in range(3):
                wait_for(lambda: reported() > 0)
                server.process.kill()
                server.process.wait(LIMIT)
                before = reported()
                server = running.enter_context(running_server("--port", url.rpartition(":")[2]))
                wait_for(lambda before=before: reported() > before)  # type: ignore[misc]
    check_records(store, counts)
