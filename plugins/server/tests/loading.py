"""Workers that report to a server, and people who look at its pages."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from det_core.interfaces.tracking import TrackingStore

from .serving import LIMIT, Answer, Client

RATE = 20
"""Reports per second of a worker."""
PERIOD = 2.0
"""Seconds after which a page asks for something again."""


def add_trials(store: TrackingStore, count: int) -> list[int]:
    """Record an experiment with running trials, and return their ids."""
    experiment = store.create_experiment(config={"name": "load", "searcher": {"metric": "loss"}}, owner="ann")
    ids = [store.create_trial(experiment.id, hparams={"lr": 0.1 * n}, seed=n).id for n in range(count)]
    for trial in ids:
        store.start_run(trial, allocation_id=f"load-{trial}")
    return ids


class Pages:
    """Open pages: each draws what its live updates announce, and its reader opens something every two seconds."""

    def __init__(self, browser: Client, experiment: int, trials: list[int], count: int) -> None:
        self.seconds: list[float] = []
        """Time that each request took."""
        self.updates = [0] * count
        """Number of live updates with new reports that each page has drawn."""
        self.failures: list[str] = []
        self._browser = browser
        self._curves = f"/data/curves?trials={','.join(map(str, trials[:10]))}&group=training&metric=loss"
        self._paths = ["/experiments", f"/experiments/{experiment}", f"/trials/{trials[0]}", self._curves]
        self._live = f"/live?experiments={experiment}&trials={','.join(map(str, trials[:20]))}"
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=target, args=(n,)) for n in range(count) for target in (self._read, self._follow)
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
        self._stopped.wait(number * PERIOD / len(self.updates))
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
def reporters(url: str, trials: list[int], processes: int) -> Iterator[dict[int, int]]:
    """Let trials report from some processes during the block. The dictionary then has the number of reports of each."""
    counts: dict[int, int] = {}
    size = -(-len(trials) // processes)
    script = Path(__file__).parent / "load_reporters.py"
    with ExitStack() as started:
        running = []
        for begin in range(0, len(trials), size):
            command = [sys.executable, script, url, str(RATE), *map(str, trials[begin : begin + size])]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            started.callback(process.kill)
            running.append(process)
        for process in running:
            assert process.stdout and process.stdout.readline() == "ready\n"
        yield counts
        for process in running:
            out, _ = process.communicate(timeout=LIMIT * 3)
            assert process.returncode == 0
            counts.update({int(trial): count for trial, count in json.loads(out).items()})


def check_records(store: TrackingStore, trials: list[int], counts: dict[int, int]) -> None:
    """Check that the store has each report and each line of the trials exactly once."""
    assert sorted(counts) == trials
    for trial, count in counts.items():
        assert [one.steps_completed for one in store.metrics(trial)] == list(range(1, count + 1))
        lines = [int(line.log.removeprefix("step ")) for line in store.logs(trial)]
        assert lines == sorted(set(lines)) and lines[-1] == count
