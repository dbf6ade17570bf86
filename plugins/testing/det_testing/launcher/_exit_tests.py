"""Tests of the ends of launches, and of launches that do not begin."""

from __future__ import annotations

import signal
from contextlib import closing
from pathlib import Path

import pytest

from det_core.errors import LaunchDelayed, LaunchError
from det_core.interfaces.launcher import EXIT_DO_NOT_RESTART, Cause, Launcher
from det_testing.launcher.launcher_suite import IsRunning, Launch, LauncherSuite

_MEMORY = Path("/sys/fs/cgroup/memory")
"""Directory in which cgroups of version 1 limit memory."""
_ALLOCATE = """
open({procs!r}, "w").write(str(os.getpid()))
report("moved")
kept = [bytearray(1 << 20) for _ in range(500)]
"""


class LaunchEndTests(LauncherSuite):
    """Tests that the runner learns how a launch ended, on which restarts depend."""

    @pytest.mark.parametrize(
        ("script", "code"),
        [
            ("", 0),
            ("sys.exit(3)", 3),
            (f"sys.exit({EXIT_DO_NOT_RESTART})", EXIT_DO_NOT_RESTART),
            ("os.kill(os.getpid(), 15)", -signal.SIGTERM),
            ("os.kill(os.getpid(), 9)", -signal.SIGKILL),
        ],
        ids=["success", "failure", "do not restart", "SIGTERM", "SIGKILL"],
    )
    def test_the_exit_code_is_that_of_the_command(self, launch: Launch, script: str, code: int) -> None:
        """A command that ends by itself is never the engine's fault, which would not count as a restart."""
        launch(f"print('last words')\n{script}").require_code(code)

    def test_an_end_does_not_change(self, launch: Launch) -> None:
        """The runner may ask to stop a launch in the moment in which it ends."""
        allocation = launch("sys.exit(3)", watched=False).allocation
        with closing(allocation):
            end = allocation.wait(self.limit)
            allocation.preempt()
            allocation.kill()
            assert allocation.wait(0) == allocation.wait(0) == end, "expected that wait() always returns the same end"
            assert end and (end.code, end.cause) == (3, Cause.WORKERS), end

    def test_a_program_that_does_not_exist_is_named(self, launch: Launch) -> None:
        """It is a typing error of the user, who reads the log. No later attempt can succeed."""
        one = launch(argv=["no-such-program", "argument"])
        one.require_code(127)  # as from a shell
        assert any("no-such-program" in line.text for line in one.lines)

    def test_a_program_that_cannot_be_executed_is_named(self, launch: Launch) -> None:
        """Shells exit with 126 for a file without the permission to run."""
        one = launch(argv=["./main.py"])
        one.require_code(126)
        assert any("main.py" in line.text for line in one.lines)

    def test_damaged_code_is_refused_and_holds_no_slots(self, launch: Launch) -> None:
        """A launch without processes must not take slots from others, and is no failure of the trial."""
        refused = None
        try:
            end = launch(code=b"no archive", slots=self.slots).ended()
        except LaunchError as error:
            refused = error
        if refused:
            assert type(refused) is LaunchError, "expected a LaunchError, because no attempt will succeed"
        else:
            assert (end.cause, bool(end.message)) == (Cause.NOT_STARTED, True), end
        launch(slots=self.slots).require_code()

    def test_more_slots_than_exist_are_refused(self, launch: Launch, launcher: Launcher) -> None:
        """The trial would wait for ever."""
        if launcher.slots is None:
            pytest.skip("the engine decides how many slots there are")
        with pytest.raises(LaunchError, match=str(launcher.slots + 1)) as caught:
            launch(slots=launcher.slots + 1).ended()
        assert not isinstance(caught.value, LaunchDelayed), "expected a LaunchError, because no attempt will succeed"

    def test_a_kill_for_lack_of_memory_is_named(self, launch: Launch, is_running: IsRunning, tmp_path: Path) -> None:
        """Otherwise, users read ``killed by signal 9`` and search for a defect of their own."""
        self.require_local("its memory cannot be limited")
        group = _MEMORY / f"det-{tmp_path.parent.name}-{tmp_path.name}"
        try:
            group.mkdir()
        except OSError as error:
            pytest.skip(f"cannot limit memory with cgroups of version 1: {error}")
        try:
            (group / "memory.limit_in_bytes").write_text(str(64 << 20), encoding="utf-8")
            one = launch(_ALLOCATE.format(procs=str(group / "cgroup.procs")))
            end = one.ended()
        finally:
            group.rmdir()
        assert one.report() == "moved"
        assert end.cause is Cause.OUT_OF_MEMORY and "memory" in end.message, one.describe()
