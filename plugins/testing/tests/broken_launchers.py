"""Launchers with one defect each, and the tests of the suite that catch it.

test_launcher.py registers them as a plugin and runs the tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any, ClassVar
from unittest import mock

from det_testing.launcher.launcher_suite import pack_code  # imports pytest, which is not light
from pydantic import AfterValidator, ConfigDict

import det_core
from det_core.config import Block, Positive
from det_core.errors import LaunchDelayed, LaunchError
from det_core.interfaces.launcher import PYTHON, Allocation, Cause, Exit, LaunchRequest, Phase, Status
from det_core.launch import node_agent
from det_core.launch.local import LocalConfig, LocalLauncher
from det_core.launch.node_agent import AllocatedNode, NodeAgent
from det_core.specs import LauncherSpec


class Wrapped(Allocation):
    """Base class of all allocations here, which passes all calls on."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def wait(self, timeout: float) -> Exit | None:
        return self.inner.wait(timeout)

    def status(self) -> Status:
        return self.inner.status()

    def preempt(self) -> None:
        self.inner.preempt()

    def kill(self) -> None:
        self.inner.kill()

    def close(self) -> None:
        self.inner.close()


class Sound(LocalLauncher):
    """Base class of all launchers here, which has no defect but its module's imports."""

    model: ClassVar[Any] = LocalConfig
    allocation: ClassVar[type[Wrapped]] = Wrapped
    claims: ClassVar[dict[str, Any]] = {}
    """Attributes of the suite for this launcher."""

    def start(self, request: LaunchRequest) -> Allocation:
        return self.allocation(super().start(self.changed(request)))

    def changed(self, request: LaunchRequest) -> LaunchRequest:
        return request


class IgnoresKeys(Sound):
    claims: ClassVar = {"blocks": {"environment": {"image": "python"}}}


class LosesConnections(Sound):
    claims: ClassVar = {"outlives_connection": 20.0}


class KeepsJobs(Sound):
    claims: ClassVar = {"has_engine": True, "limit": 10.0}


class StartsAnew(Sound):
    adopts = True

    def adopt(self, request: LaunchRequest, number: float) -> Allocation:
        return self.start(request)


class AdoptsAnotherRun(StartsAnew):
    pass


class KillsOnHandOver(StartsAnew):
    pass


class ObeysReplacedRunners(StartsAnew):
    pass


class AnyConfig(Block):
    model_config = ConfigDict(extra="allow")
    slots: Positive = 1


class AcceptsAnything(Sound):
    model = AnyConfig


class OddConfig(LocalConfig):
    slots: Annotated[int, AfterValidator(lambda count: count + 1)] = 1


class ChangesOptions(Sound):
    model = OddConfig


class NamesAnotherDevice(Sound):
    def device(self) -> Any:
        return "gpu"


class Prefixed(Sound):
    """Launcher with words before each command."""

    prefix: ClassVar[Sequence[str]] = ()

    def changed(self, request: LaunchRequest) -> LaunchRequest:
        command = [sys.executable if word == PYTHON else word for word in request.argv]
        return replace(request, argv=[*self.prefix, *command])


class RunsElsewhere(Prefixed):
    prefix = ("/bin/sh", "-c", 'cd / && exec "$@"', "sh")


class UsesAnotherPython(Prefixed):
    prefix = ("env", "PATH=/usr/bin:/bin")


class KeepsInputOpen(Prefixed):
    claims: ClassVar = {"limit": 4.0}
    prefix = ("/bin/sh", "-c", 'sleep 60 | "$@"', "sh")


class IgnoresHangups(Prefixed):
    prefix = ("/bin/sh", "-c", 'trap "" HUP; exec "$@"', "sh")


class ExpandsBars(Prefixed):
    prefix = ("/bin/sh", "-c", '"$@" | tr "\\r" "\\n"', "sh")


class StartsShells(Prefixed):
    def changed(self, request: LaunchRequest) -> LaunchRequest:
        request = super().changed(request)
        return replace(request, argv=["/bin/sh", "-c", " ".join(request.argv)])


class HidesTheTrial(Sound):
    def changed(self, request: LaunchRequest) -> LaunchRequest:
        return replace(request, info={"cluster.json": request.info["cluster.json"]})


class TrimsVariables(Sound):
    def changed(self, request: LaunchRequest) -> LaunchRequest:
        return replace(request, env={name: value.strip() for name, value in request.env.items()})


class ChoosesThreads(Sound):
    def changed(self, request: LaunchRequest) -> LaunchRequest:
        return replace(request, env={**request.env, "OMP_NUM_THREADS": "1"})


class LimitsCode(Sound):
    def start(self, request: LaunchRequest) -> Allocation:
        if len(request.code) > 1 << 20:
            raise LaunchError("the engine accepts no more than 1 MiB")
        return super().start(request)


class NeverRuns(Sound):
    class allocation(Wrapped):
        def status(self) -> Status:
            return replace(super().status(), phase=Phase.STARTING)


class QueuesAfterwards(Sound):
    class allocation(Wrapped):
        def status(self) -> Status:
            return Status(phase=Phase.QUEUED) if self.inner.wait(0) else super().status()


class ReportsFailures(Sound):
    class allocation(Wrapped):
        def wait(self, timeout: float) -> Exit | None:
            end = super().wait(timeout)
            return end and replace(end, code=min(abs(end.code), 1))


class BlamesTheEngine(Sound):
    class allocation(Wrapped):
        def wait(self, timeout: float) -> Exit | None:
            end = super().wait(timeout)
            return replace(end, cause=Cause.NODE_LOST) if end and end.code < 0 else end


class AlwaysSucceeds(Sound):
    claims: ClassVar = {"limit": 4.0}

    class allocation(Wrapped):
        def wait(self, timeout: float) -> Exit | None:
            return Exit(code=0) if super().wait(timeout) else None


class ForgetsTheEnd(Sound):
    class allocation(Wrapped):
        told = False

        def wait(self, timeout: float) -> Exit | None:
            end = None if self.told else super().wait(timeout)
            self.told |= end is not None
            return end


class PromisesMore(Sound):
    def start(self, request: LaunchRequest) -> Allocation:
        try:
            return super().start(request)
        except LaunchError as error:
            raise LaunchDelayed(str(error)) from error


class LosesSlots(Sound):
    def start(self, request: LaunchRequest) -> Allocation:
        try:
            return super().start(request)
        except LaunchError:
            super().start(replace(request, argv=["sleep", "1000"], code=pack_code({}), key="lost"))
            raise


class HidesMemoryKills(Sound):
    class allocation(Wrapped):
        def wait(self, timeout: float) -> Exit | None:
            end = super().wait(timeout)
            return end and Exit(code=end.code)


class Logging(Sound):
    """Launcher that changes each line."""

    def changed(self, request: LaunchRequest) -> LaunchRequest:
        return replace(request, log=lambda *line: self.log(request, *line))

    def log(self, request: LaunchRequest, rank: int | None, stream: str, text: str) -> None:
        raise NotImplementedError


class MergesStreams(Logging):
    def log(self, request: LaunchRequest, rank: int | None, stream: str, text: str) -> None:
        request.log(rank, "stdout", text)


class RepeatsLines(Logging):
    def log(self, request: LaunchRequest, rank: int | None, stream: str, text: str) -> None:
        request.log(rank, stream, text)
        request.log(rank, stream, text)


class StripsLines(Logging):
    def log(self, request: LaunchRequest, rank: int | None, stream: str, text: str) -> None:
        request.log(rank, stream, text.strip())


class ForgetsRanks(Logging):
    def log(self, request: LaunchRequest, rank: int | None, stream: str, text: str) -> None:
        request.log(None, stream, text)


class CutsLines(Logging):
    def log(self, request: LaunchRequest, rank: int | None, stream: str, text: str) -> None:
        request.log(rank, stream, text[:1000])


class DropsOddLines(Logging):
    def log(self, request: LaunchRequest, rank: int | None, stream: str, text: str) -> None:
        if text.isascii():
            request.log(rank, stream, text)


class HoldsOneLineBack(Logging):
    claims: ClassVar = {"limit": 4.0}
    held: tuple[Any, ...] = ()

    def log(self, request: LaunchRequest, rank: int | None, stream: str, text: str) -> None:
        if self.held:
            request.log(*self.held)
        self.held = (rank, stream, text)


class IgnoresPreemption(Sound):
    claims: ClassVar = {"limit": 4.0}

    class allocation(Wrapped):
        def preempt(self) -> None:
            pass


class WaitsForTheEnd(Sound):
    class allocation(Wrapped):
        def wait(self, timeout: float) -> Exit | None:
            return super().wait(6)  # longer than the suite allows


class Unguarded(Sound):
    """Launcher that starts the command itself, as the first attempt of most authors does."""

    class Command:
        def __init__(self, argv: Any, env: Any, *, cwd: Path, inherit: Any, outputs: Any) -> None:
            stdout, stderr = outputs
            self.process = subprocess.Popen(
                argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr
            )

        def wait(self, timeout: float) -> int | None:
            with suppress(subprocess.TimeoutExpired):
                return self.process.wait(timeout)
            return None

        def kill(self) -> None:
            self.process.kill()

        close = kill

    def start(self, request: LaunchRequest) -> Allocation:
        with mock.patch.object(node_agent, "SpawnedCommand", self.Command):
            return super().start(request)


class LeavesFiles(Sound):
    def changed(self, request: LaunchRequest) -> LaunchRequest:
        tempfile.mkdtemp()
        return request


class LeavesDescriptors(Sound):
    kept: ClassVar[list[int]] = []

    def changed(self, request: LaunchRequest) -> LaunchRequest:
        self.kept.append(os.open("/dev/null", os.O_RDONLY))
        return request


class LeavesThreads(Sound):
    def changed(self, request: LaunchRequest) -> LaunchRequest:
        threading.Thread(target=time.sleep, args=[30], daemon=True).start()
        return request


class MixesLaunches(Sound):
    def changed(self, request: LaunchRequest) -> LaunchRequest:
        self.request = request
        time.sleep(0.2)
        return self.request


class SharesSlots(Sound):
    """Launcher that gives the same slots to all launches, at once."""

    class allocation(Wrapped):
        def status(self) -> Status:
            return Status(phase=Phase.RUNNING)

    def start(self, request: LaunchRequest) -> Allocation:
        return self.allocation(NodeAgent(request, AllocatedNode(name="node", slot_ids=range(request.slots))))


class ReversesPriorities(Sound):
    def changed(self, request: LaunchRequest) -> LaunchRequest:
        return replace(request, priority=100 - request.priority)


class ForgetsSecrets(Sound):
    claims: ClassVar = {"sends_secrets": True}


class RelaysNoCalls(Sound):
    def changed(self, request: LaunchRequest) -> LaunchRequest:
        return replace(request, call=lambda method, body: b"")


class ShowsVariables(Prefixed):
    """Launcher that passes variables as arguments, as ``ssh HOST env NAME=VALUE ...`` does."""

    def changed(self, request: LaunchRequest) -> LaunchRequest:
        shell = ["/bin/sh", "-c", 'while [ "$1" != -- ]; do export "$1"; shift; done; shift; "$@"; exit $?', "sh"]
        variables = [f"{name}={value}" for name, value in request.env.items()]
        return replace(request, argv=[*shell, *variables, "--", *super().changed(request).argv], env={})


class LogsVariables(Sound):
    def changed(self, request: LaunchRequest) -> LaunchRequest:
        request.log(None, "det", f"starting with {request.env}")
        return request


class WritesVariables(Sound):
    def changed(self, request: LaunchRequest) -> LaunchRequest:
        Path(tempfile.gettempdir(), "variables").write_text(str(request.env))
        return request


class GivesOneSlot(Sound):
    def changed(self, request: LaunchRequest) -> LaunchRequest:
        return replace(request, slots=1)


class ChangesKeys(Sound):
    def changed(self, request: LaunchRequest) -> LaunchRequest:
        return replace(request, key=f"{request.key}-{time.monotonic_ns()}")


class ForgetsTheSubmission(Sound):
    def changed(self, request: LaunchRequest) -> LaunchRequest:
        return replace(request, submitted=datetime.now(timezone.utc))


class BlocksInStart(Sound):
    claims: ClassVar = {"limit": 4.0}

    def start(self, request: LaunchRequest) -> Allocation:
        allocation = super().start(request)
        while allocation.status().phase is Phase.QUEUED and not allocation.wait(0.1):
            pass  # until it is the turn of this launch
        return allocation


class AsksSlowly(Sound):
    class allocation(Wrapped):
        def status(self) -> Status:
            time.sleep(6)
            return super().status()


class FailsAfterTheEnd(Sound):
    class allocation(Wrapped):
        def kill(self) -> None:
            if self.inner.wait(0):
                raise ProcessLookupError("the job does not exist")
            super().kill()


class BlamesTheWithdrawn(Sound):
    class allocation(Wrapped):
        def wait(self, timeout: float) -> Exit | None:
            end = super().wait(timeout)
            return (
                end and Exit(code=end.code or 1, cause=Cause.CANCELED)
                if end and end.cause is Cause.NOT_STARTED
                else end
            )


class HidesTheReason(Sound):
    class allocation(Wrapped):
        def status(self) -> Status:
            return replace(super().status(), message="")


class ClaimsToRun(Sound):
    claims: ClassVar = {"limit": 4.0}

    class allocation(Wrapped):
        def status(self) -> Status:
            return replace(super().status(), phase=Phase.RUNNING)


class ReportsCodesOfShells(Sound):
    class allocation(Wrapped):
        def wait(self, timeout: float) -> Exit | None:
            end = super().wait(timeout)
            return replace(end, code=128 - end.code) if end and end.code < 0 else end


class KillsToPreempt(Sound):
    class allocation(Wrapped):
        def preempt(self) -> None:
            self.kill()


class FailsToClose(Sound):
    class allocation(Wrapped):
        def close(self) -> None:
            super().close()
            raise OSError("the job is gone")


CAUGHT_BY: dict[type[Sound], list[str]] = {
    Sound: ["the_plugin_is_light"],
    AcceptsAnything: ["wrong_options_are_refused_with_the_config"],
    ChangesOptions: ["options_can_be_stored"],
    NamesAnotherDevice: ["the_launcher_describes_its_slots"],
    RunsElsewhere: ["processes_run_in_their_unpacked_code"],
    UsesAnotherPython: ["python_is_the_interpreter_of_the_node"],
    StartsShells: ["a_command_need_not_be_python"],
    HidesTheTrial: ["the_cluster_info_is_complete"],
    TrimsVariables: ["variables_arrive_unchanged"],
    ChoosesThreads: ["variables_of_the_request_come_first"],
    KeepsInputOpen: ["standard_input_is_empty"],
    IgnoresHangups: ["signals_have_their_default_actions"],
    LimitsCode: ["large_code_arrives"],
    NeverRuns: ["phases_follow_each_other"],
    QueuesAfterwards: ["phases_follow_each_other"],
    ReportsFailures: [
        "the_exit_code_is_that_of_the_command[failure]",
        "a_program_that_does_not_exist_is_named",
        "a_program_that_cannot_be_executed_is_named",
    ],
    BlamesTheEngine: ["the_exit_code_is_that_of_the_command[SIGKILL]"],
    AlwaysSucceeds: ["an_experiment_survives_a_crash_and_a_pause"],
    ForgetsTheEnd: ["an_end_does_not_change"],
    PromisesMore: ["damaged_code_is_refused_and_holds_no_slots", "more_slots_than_exist_are_refused"],
    LosesSlots: ["damaged_code_is_refused_and_holds_no_slots"],
    HidesMemoryKills: ["a_kill_for_lack_of_memory_is_named"],
    MergesStreams: ["lines_have_their_stream_and_order"],
    ForgetsRanks: ["lines_have_their_rank"],
    HoldsOneLineBack: ["lines_arrive_while_the_processes_run", "the_last_lines_arrive_before_the_end"],
    CutsLines: ["long_lines_arrive_complete"],
    DropsOddLines: ["any_bytes_are_delivered"],
    ExpandsBars: ["overwritten_text_counts_once"],
    IgnoresPreemption: [
        "preemption_reaches_the_workers",
        "preemption_reaches_workers_that_connect_later",
        "a_launch_that_waits_can_be_withdrawn[preempt]",
    ],
    WaitsForTheEnd: ["no_call_waits_for_processes_that_hang"],
    Unguarded: [
        "a_kill_ends_all_processes",
        "no_process_outlives_the_command",
        "a_launch_waits_for_the_end_of_the_previous",
        "processes_end_when_their_holder_is_killed",
        "a_resumed_trial_waits_for_orphans",
    ],
    LeavesFiles: ["close_releases_everything"],
    LeavesDescriptors: ["close_releases_everything"],
    LeavesThreads: ["close_releases_everything"],
    MixesLaunches: ["launches_start_from_any_thread"],
    SharesSlots: ["launches_at_once_have_different_slots", "launches_wait_for_slots"],
    ReversesPriorities: ["waiting_launches_go_by_priority_and_submission"],
    GivesOneSlot: ["the_cluster_info_is_complete"],
    ChangesKeys: ["a_launch_waits_for_the_end_of_the_previous"],
    ForgetsTheSubmission: ["waiting_launches_go_by_priority_and_submission"],
    BlocksInStart: ["launches_wait_for_slots"],
    AsksSlowly: ["no_call_waits_for_processes_that_hang"],
    FailsAfterTheEnd: ["an_end_does_not_change"],
    BlamesTheWithdrawn: ["a_launch_that_waits_can_be_withdrawn[kill]"],
    HidesTheReason: ["launches_wait_for_slots"],
    ClaimsToRun: ["launches_wait_for_slots"],
    ReportsCodesOfShells: ["the_exit_code_is_that_of_the_command[SIGKILL]"],
    KillsToPreempt: ["preemption_reaches_the_workers"],
    FailsToClose: ["the_exit_code_is_that_of_the_command[success]"],
    RepeatsLines: ["lines_have_their_stream_and_order"],
    StripsLines: ["lines_have_their_stream_and_order"],
    ForgetsSecrets: ["processes_read_the_secrets_of_their_config"],
    RelaysNoCalls: ["calls_reach_the_tracking_store_of_the_runner"],
    ShowsVariables: ["secrets_are_not_visible_to_others"],
    LogsVariables: ["secrets_are_not_visible_to_others"],
    WritesVariables: ["secrets_are_not_visible_to_others"],
    IgnoresKeys: ["no_key_is_ignored"],
    LosesConnections: ["processes_outlive_a_lost_connection"],
    StartsAnew: ["the_launch_of_a_killed_runner_is_adopted"],
    AdoptsAnotherRun: ["another_run_is_not_adopted"],
    KillsOnHandOver: ["a_launch_that_was_handed_over_is_adopted"],
    ObeysReplacedRunners: ["a_replaced_runner_ends_nothing"],
    KeepsJobs: ["what_a_frozen_runner_has_left_is_removed"],
}


def launcher_name(launcher: type[Sound]) -> str:
    """Return the name under which a launcher is registered."""
    return launcher.__name__.lower()


@det_core.hookimpl
def det_launchers() -> Iterator[LauncherSpec]:
    for launcher in CAUGHT_BY:
        yield LauncherSpec(
            name=launcher_name(launcher),
            target=f"{__name__}:{launcher.__name__}",
            config_model=f"{__name__}:{launcher.model.__name__}",
        )
