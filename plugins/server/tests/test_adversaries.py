"""Adversaries of each class attack a server at the same time, while people train and look at pages."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from det_server._passwords import hash_password
from det_testing import campaign_seeds

from det_core.interfaces.account_records import Role, TokenScope
from det_core.interfaces.records import MetricsReport
from det_core.interfaces.tracking import TrackingStore

from .adversaries import CLASSES
from .loading import Pages, add_trials, check_records, reporters
from .serving import LIMIT, PASSWORD, Client, account_access, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.soak]

SECONDS = len(campaign_seeds(few=60, many=600))
"""Time of the attack, which ``DET_SOAK=0:90`` limits to 90 seconds."""
WORKERS, PROCESSES, RATE, PAGES = 50, 5, 1, 20
SLOWEST = 1.0
"""Seconds within which 99 % of pages answer on a quiet machine."""
MOST_TIMES = 20
"""Limit on the same time as a multiple of that before the attack, for a machine that is busy with others."""
MOST_MEMORY = 1 << 30
"""Bytes that the server may take, of which 576 MiB are the bodies and large answers of one caller."""
MOST_FAILED_LOGINS = 10
"""Number of wrong passwords that two addresses may try for a user."""
REPORTS = 10_000
"""Number of reports of a trial whose metrics are a large answer."""


@contextmanager
def child(*arguments: object, log: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a program during the block, which ends when its stdin is closed, and write its stderr into a file."""
    with log.open("w") as errors:
        command = [sys.executable, *map(str, arguments)]
        root = Path(__file__).parents[3]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=root
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate(timeout=LIMIT)


def add_large_trial(store: TrackingStore) -> int:
    """Record a trial whose metrics are a large answer, and return its id."""
    (trial,) = add_trials(store, 1)
    for begin in range(0, REPORTS, 5000):
        steps = range(begin, begin + 5000)
        store.report_metrics(
            [
                MetricsReport(trial_id=trial, run_id=1, group="training", steps_completed=step, metrics={"loss": step})
                for step in steps
            ]
        )
    return trial


def count_records(store: TrackingStore) -> list[int]:
    """Return the numbers of the records that calls without rights would create."""
    tokens = [token for user in store.users() for token in store.access_tokens(user.name)]
    return [store.count_experiments(), len(store.users()), len(tokens)]


@pytest.mark.timeout(2 * SECONDS + 300)
def test_people_notice_no_adversary(store: TrackingStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trials = add_trials(store, WORKERS)
    large = add_large_trial(store)
    for user, role in (("root", Role.ADMIN), ("ann", Role.USER), ("eve", Role.VIEWER)):
        store.create_user(user, role=role, password=hash_password(PASSWORD))
    access = account_access(store)
    ann, eve = (access.create_api_token(user, TokenScope.WRITE, "test", None) for user in ("ann", "eve"))
    session = access.create_session("ann", store.password_hash("ann"))
    records = count_records(store)
    log = tmp_path / "server.log"
    with child("-m", "plugins.server.tests.bounded_server", log=log) as server:
        assert server.stdout
        port = int(server.stdout.readline())
        browser = Client(("127.0.0.1", port), {"Cookie": f"det-{port}={session}"})
        process = psutil.Process(server.pid)
        attack = (Path(__file__).parent / "adversaries.py", port, eve, large)
        memory = [0]

        def measure(seconds: float) -> list[float]:
            """Return the times that pages take for a while."""
            begin, known = time.monotonic(), len(pages.seconds)

            def is_over() -> bool:
                memory.append(process.memory_info().rss)
                return time.monotonic() - begin > seconds

            wait_for(is_over, 2 * seconds)
            return pages.seconds[known:]

        with (
            reporters(f"http://127.0.0.1:{port}/?token={ann}", trials, PROCESSES, RATE) as counts,
            Pages(browser, store.trial(trials[0]).experiment_id, trials, PAGES) as pages,
        ):
            calm = measure(SECONDS / 3)
            with child(*attack, log=tmp_path / "adversaries.log") as adversaries:
                assert adversaries.stdout and adversaries.stdout.readline() == "ready\n"
                attacked = measure(SECONDS)
                out, _ = adversaries.communicate(timeout=2 * LIMIT)
                assert adversaries.returncode == 0, (tmp_path / "adversaries.log").read_text()
    tried, lines = json.loads(out), log.read_text().splitlines()
    before, slowest = (statistics.quantiles(times, n=100)[98] for times in (calm, attacked))
    with capsys.disabled():
        print(
            f"\n{sum(counts.values())} reports, 99 % of {len(attacked)} pages within {slowest:.2f} s ({before:.2f} s "
            f"before), 50 % within {statistics.median(attacked):.2f} s ({statistics.median(calm):.2f} s), memory up to "
            f"{max(memory) >> 20} MB, {len(lines)} lines in the log"
        )
        print(*(f"  {name}: {answers}" for name, answers in tried.items()), sep="\n")
    assert pages.failures == []
    assert slowest < max(SLOWEST, MOST_TIMES * before)
    assert max(memory) < MOST_MEMORY
    check_records(store, trials, counts)
    assert all(tried[attack.__name__] for attack in CLASSES)
    # Refused calls leave no record but that of a failed login, and at most a line.
    assert count_records(store) == records
    assert {one.action for one in store.actions()} == {"failed login"}
    assert len(store.actions()) <= MOST_FAILED_LOGINS
    assert not [line for line in lines if "Traceback" in line]
    assert len(lines) < 10 * SECONDS
