"""Tests of what launches hold, and of launches at the same time."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from det_testing.launcher._stop_tests import LISTEN
from det_testing.launcher.launcher_suite import Launch, LauncherSuite


class LaunchResourceTests(LauncherSuite):
    """Tests that a runner can start thousands of launches, several of them at once."""

    def test_close_releases_everything(self, launch: Launch, scratch: Path, home: Path) -> None:
        """A runner of a long search starts thousands of launches."""

        def held() -> dict[str, Any]:
            files = {str(path) for root in (scratch, home) for path in root.rglob("*")}
            descriptors = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc") else 0  # noqa: PTH112, PTH208
            return {"files": files, "descriptors": descriptors, "threads": threading.active_count()}

        before: dict[str, Any] = {}
        for _ in range(5):  # what one launch left may have been removed late, but a leak grows
            launch(f"{LISTEN}channel()", slots=self.slots).require_code()
            one = launch("time.sleep(100)", slots=self.slots)
            one.wait_until(lambda one=one: one.statuses, "state")  # type: ignore[misc]
            one.allocation.kill()
            assert one.ended().code != 0
            time.sleep(0.2)  # a thread that has ended may still be listed
            now = held()
            if before and all(now[what] <= before[what] for what in now):
                return
            before = now
        pytest.fail(f"launches that have ended still hold more after each of them, at last {before}")

    def test_launches_start_from_any_thread(self, launch: Launch) -> None:
        """Each trial of a search has a thread of its own, and all share one launcher."""
        ends: dict[int, Any] = {}
        numbers = range(1, 7 if self.queues else self.slots + 1)

        def start(number: int) -> None:
            one = launch(f"report({number}); sys.exit({number})", key=f"suite-{number}")
            ends[number] = (one.ended().code, one.reports())

        threads = [threading.Thread(target=start, args=[number], daemon=True) for number in numbers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(self.limit)
        assert ends == {number: (number, [number]) for number in numbers}
