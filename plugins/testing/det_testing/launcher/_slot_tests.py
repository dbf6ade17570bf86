"""Tests of slots, and of launches that wait for them."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone

import pytest

from det_core.interfaces.launcher import Cause, Launcher, Phase
from det_testing.launcher._stop_tests import LISTEN
from det_testing.launcher.launcher_suite import Launch, LauncherSuite
from det_testing.launcher.watched_launch import WatchedLaunch

_HOLD = f"""{LISTEN}
lines = channel()
cluster = json.load(open(os.path.join(os.environ["DET_INFO_DIR"], "cluster.json")))
report([cluster["agent_id"], cluster["slot_ids"], os.environ.get("CUDA_VISIBLE_DEVICES")])
lines.readline()
"""
"""Script that reports its slots, and holds them until it is preempted."""


class LaunchSlotTests(LauncherSuite):
    """Tests that no slot is used twice, and that launches wait for slots."""

    def test_launches_at_once_have_different_slots(self, launch: Launch, launcher: Launcher) -> None:
        """Two trials on one GPU run out of memory, or share its time."""
        if not self.numbers_slots:
            pytest.skip("the engine hides the slots of other launches")
        launches = [launch(_HOLD, key=f"suite-{number}") for number in range(self.slots)]
        found = [one.report() for one in launches]
        for one in launches:
            one.allocation.preempt()
            one.require_code()
        assert [len(ids) for _, ids, _ in found] == [1] * self.slots
        assert len({(node, ids[0]) for node, ids, _ in found}) == self.slots, found
        if launcher.device() == "cuda":
            assert len({(node, gpus) for node, _, gpus in found if gpus and "," not in gpus}) == self.slots, found

    def test_launches_wait_for_slots(self, launch: Launch) -> None:
        """A search has more trials than slots, and so have two searches on one machine."""
        first = self._fill(launch)
        second = launch("report('second')", key="suite-second")
        self._wait_queued(second)
        time.sleep(0.5)
        assert second.reports() == []
        assert second.allocation.status().message, "expected the reason why it waits"
        first.allocation.preempt()
        assert second.report() == "second"
        first.require_code()
        second.require_code()

    @pytest.mark.parametrize("how", ["preempt", "kill"])
    def test_a_launch_that_waits_can_be_withdrawn(self, launch: Launch, how: str) -> None:
        """The user stops the experiment before the launch had its turn."""
        first = self._fill(launch)
        second = launch("report('second')", key="suite-second")
        self._wait_queued(second)
        getattr(second.allocation, how)()
        assert second.ended().cause is Cause.NOT_STARTED, second.describe()
        first.allocation.preempt()
        first.require_code()
        launch(slots=self.slots, key="suite-third").require_code()
        assert second.reports() == []

    def test_waiting_launches_go_by_priority_and_submission(self, launch: Launch) -> None:
        """Smaller numbers of ``resources.priority`` go first, then what was submitted first."""
        if not self.orders:
            pytest.skip("the engine decides which launch goes first")
        first, now, waiting = self._fill(launch), datetime.now(timezone.utc), {}
        for name, priority, age in (("last", 60, 9), ("second", 42, 1), ("first", 42, 5), ("urgent", 7, 0)):
            waiting[name] = launch(
                "report(time.time())",
                key=f"suite-{name}",
                slots=self.slots,
                priority=priority,
                submitted=now - timedelta(hours=age),
            )
            self._wait_queued(waiting[name])
        first.allocation.preempt()
        started = {name: one.report() for name, one in waiting.items()}
        assert sorted(started, key=lambda name: started[name]) == ["urgent", "first", "second", "last"]
        for one in waiting.values():
            one.require_code()

    def _fill(self, launch: Launch) -> WatchedLaunch:
        """Start a launch that holds all slots until it is preempted."""
        if not self.queues:
            pytest.skip("launches do not wait for slots")
        first = launch(_HOLD, slots=self.slots, key="suite-first")
        first.report()
        return first

    def _wait_queued(self, one: WatchedLaunch) -> None:
        one.wait_until(lambda: [status for status in one.statuses if status.phase is Phase.QUEUED], "QUEUED")
