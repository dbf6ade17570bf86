"""Storage of log lines, and the line that explains the failure of a run."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from det_core.errors import TrackingError
from det_core.interfaces.records import LogLine, Run
from det_core.interfaces.tracking import TrackingStore
from det_core.runner._log_writer import LogWriter

from ..waiting import wait_for

TRACEBACK = ["Traceback (most recent call last):", '  File "train.py", line 1, in <module>', "    boom()"]


def raised(rank: int | None, error: str) -> list[tuple[int | None, str]]:
    return [(rank, text) for text in [*TRACEBACK, error]]


LAUNCHER = [*raised(None, "ChildFailedError: "), (None, "===="), (None, "train.py FAILED"), (None, "====")]


def test_a_worker_that_prints_faster_than_its_lines_are_stored_waits(
    store: TrackingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the memory of the runner would grow without bound, and one transaction could write a million lines."""
    trial = store.create_trial(store.create_experiment(config={}).id, hparams={}, seed=0)
    run = store.start_run(trial.id, allocation_id="")
    sizes: list[int] = []
    stored = threading.Event()
    add_logs = store.add_logs

    def add_slowly(lines: Sequence[LogLine]) -> None:
        stored.wait(120)
        sizes.append(len(lines))
        add_logs(lines)

    monkeypatch.setattr(store, "add_logs", add_slowly)
    printed = 0

    def print_without_end(logs: LogWriter) -> None:
        nonlocal printed
        for printed in range(1, 5001):
            logs.add(0, "stdout", str(printed))

    with LogWriter(store, run) as logs:
        worker = threading.Thread(target=print_without_end, args=(logs,))
        worker.start()
        wait_for(lambda: printed == 2001)  # a thousand are being stored, a thousand wait, and one cannot be added
        logs.check()  # does not block
        worker.join(0.1)
        assert (worker.is_alive(), printed) == (True, 2001)
        stored.set()
        worker.join(20)
    assert max(sizes) <= 1000
    assert [line.log for line in store.logs(trial.id)] == [str(number) for number in range(1, 5001)]


def test_lines_that_cannot_be_stored_are_an_error(store: TrackingStore) -> None:
    with pytest.raises(TrackingError), LogWriter(store, Run(trial_id=1, run_id=1, allocation_id="")) as logs:
        for number in range(5000):
            logs.add(0, "stdout", str(number))


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        ([], ""),
        ([(None, "oops"), (None, ""), (None, "-----")], "oops"),
        (raised(None, "ValueError: bad"), "ValueError: bad"),
        (LAUNCHER, "train.py FAILED"),
        ([*raised(1, "ValueError: bad"), *raised(0, "Lost: 1"), *LAUNCHER], "ValueError: bad"),
        ([*raised(0, "det_core.errors.PeerLost: rank 1"), *raised(1, "ValueError: bad")], "ValueError: bad"),
        ([*raised(1, "KeyError: 'x'"), *raised(1, "ValueError: bad"), (1, "a warning")], "ValueError: bad"),
        ([(1, "just words"), (0, "more words")], "more words"),
    ],
)
def test_the_error_of_a_run_is_the_first_exception_or_the_last_line(
    store: TrackingStore, lines: list[tuple[int | None, str]], error: str
) -> None:
    logs = LogWriter(store, Run(trial_id=1, run_id=1, allocation_id=""))
    for rank, text in lines:
        logs.add(rank, "stderr", text)
    logs.add(0, "stdout", "Traceback (most recent call last):")
    logs.add(0, "stdout", "not an error")
    assert logs.error == error
