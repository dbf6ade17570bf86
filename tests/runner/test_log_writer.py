"""Storage of log lines, and the line that explains the failure of a run."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from det_core.errors import TrackingError
from det_core.interfaces.records import LogLine, Run
from det_core.interfaces.tracking import TrackingStore
from det_core.runner._log_levels import level_of_line
from det_core.runner._log_writer import LogWriter

from ..waiting import wait_for

TRACEBACK = ["Traceback (most recent call last):", '  File "train.py", line 1, in <module>', "    boom()"]


def raised(rank: int | None, error: str) -> list[tuple[int | None, str]]:
    return [(rank, text) for text in [*TRACEBACK, error]]


LAUNCHER = [*raised(None, "ChildFailedError: "), (None, "===="), (None, "train.py FAILED"), (None, "====")]


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("loss 0.1, INFORMATION gain 3", "INFO"),
        ("2026-01-01 00:00:00,000 - root - DEBUG - x", "DEBUG"),
        ("[WARN] disk", "WARNING"),
        ("\x1b[31mERROR\x1b[0m: x", "ERROR"),
        ("FATAL: x", "CRITICAL"),
        ("x ERRORS=3 level=ERROR", "INFO"),
        ("x" * 200 + " ERROR", "INFO"),
        ("W0000 00:00:17.1 cuda.cc:3] x", "WARNING"),
        ("E20260101 12:00:00.5 7 a.cc:3] x", "ERROR"),
        ("model.py:3: UserWarning: x", "WARNING"),
        ("torch.OutOfMemoryError: CUDA", "ERROR"),
        ("KeyboardInterrupt", "ERROR"),
        (TRACEBACK[0], "ERROR"),
        ("no Traceback here, Error: yes", "INFO"),
    ],
)
def test_a_line_has_the_level_that_it_names(line: str, level: str) -> None:
    assert level_of_line(line) == level


def test_all_lines_of_a_traceback_are_errors(store: TrackingStore) -> None:
    trial = store.create_trial(store.create_experiment(config={}).id, hparams={}, seed=0)
    run = store.start_run(trial.id, allocation_id="")
    with LogWriter(store, run) as writer:
        for rank, text in [*raised(1, "mine.Failure: x"), (1, "after"), (0, "    indented")]:
            writer.add(rank, "stderr", text)
    assert [line.level for line in store.logs(trial.id)] == ["ERROR"] * 4 + ["INFO"] * 2


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
