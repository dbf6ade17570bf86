"""Which of all lines tells why a run failed."""

from __future__ import annotations

import pytest

from det_core.interfaces.tracking import Run, TrackingStore
from det_core.runner._logs import LogWriter

TRACEBACK = ["Traceback (most recent call last):", '  File "train.py", line 1, in <module>', "    boom()"]


def raised(rank: int | None, error: str) -> list[tuple[int | None, str]]:
    return [(rank, text) for text in [*TRACEBACK, error]]


LAUNCHER = [*raised(None, "ChildFailedError: "), (None, "===="), (None, "train.py FAILED"), (None, "====")]


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
def test_the_error(store: TrackingStore, lines: list[tuple[int | None, str]], error: str) -> None:
    logs = LogWriter(store, Run(trial_id=1, run_id=1, allocation_id=""))
    for rank, text in lines:
        logs.add(rank, "stderr", text)
    logs.add(0, "stdout", "Traceback (most recent call last):")
    logs.add(0, "stdout", "not an error")
    assert logs.error == error
