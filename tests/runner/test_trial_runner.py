"""Decisions on the restarts of a trial, without any process."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from det_core.config import parse_config
from det_core.core import EarlyExitReason, open_storage_block
from det_core.core.event_stream import EventStream
from det_core.core.failure_notes import FAILURE_PREFIX
from det_core.errors import InvalidExperimentException, LaunchDelayed, LaunchError, PluginError, StaleRun, StoreBusy
from det_core.interfaces.launcher import EXIT_DO_NOT_RESTART, PYTHON, Cause, Exit, LaunchRequest, Phase, Status
from det_core.interfaces.records import (
    CheckpointState,
    ExperimentRecord,
    NewTrial,
    State,
    TrialRecord,
    TrialUpdate,
)
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import _launch_supervision, _trial_history, _trial_runner
from det_core.runner._failed_launches import FailedLaunches
from det_core.runner._log_writer import LogWriter
from det_core.runner._restart_policy import LIMITS, Count, TrainingOutcome
from det_core.runner._trial_runner import TrainingResult, TrialRunner

from .played_launcher import (
    FAILURE,
    SUCCESS,
    PlayedAllocation,
    PlayedLauncher,
    Raising,
    Step,
    ended_by,
    report_metrics,
    run_ids,
    save_checkpoint,
)

DELAY = TrialRunner._delay
INTERRUPTIONS = (Cause.PREEMPTED, Cause.TIME_LIMIT, Cause.NODE_LOST)


class Play:
    """Experiment with one trial, whose launches are played."""

    def __init__(self, store: TrackingStore, directory: Path, **keys: Any) -> None:
        self.block = {"type": "directory", "container_path": str(directory)}
        config = {
            "entrypoint": "model_def:T",
            "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 20}},
            "checkpoint_storage": self.block,
            **keys,
        }
        self.store = store
        self.config = parse_config(config)
        self.experiment: ExperimentRecord = store.create_experiment(config=self.config.dump())
        self.trial: TrialRecord = store.create_trial(self.experiment.id, hparams={"lr": 0.1}, seed=3)
        store.acquire_lease(self.experiment.id, "test", seconds=600, state=State.ACTIVE)
        self.request: State | None = None
        self.adopts = False

    def run(self, *steps: Step, from_beginning: bool = False, stops: bool = False) -> TrainingResult:
        """Run the trial with launches that end as given, and check that all of them were started."""
        self.launcher = PlayedLauncher(*steps, stops=stops)
        self.launcher.adopts = self.adopts
        runner = TrialRunner(
            store=self.store,
            experiment=self.experiment,
            config=self.config,
            code=b"code",
            launcher=self.launcher,
            lease="test",
            renew_lease=lambda: self.store.renew_lease(self.experiment.id, "test", seconds=600),
            storage=open_storage_block(self.block),
            launches=FailedLaunches(),
            from_beginning=from_beginning,
            stream=EventStream(
                "runner",
                cluster_id=self.store.cluster_id,
                experiment_id=self.experiment.id,
                config=self.config.dump(),
                fetch_files=lambda *_: None,
            ),
        )
        result = runner.run(self.trial, lambda: self.request)
        assert self.launcher.steps == []
        assert all(one.calls[-1] == "close" for one in self.launcher.allocations)
        return result

    @property
    def record(self) -> TrialRecord:
        return self.store.trial(self.trial.id)

    @property
    def log(self) -> list[str]:
        return [line.log for line in self.store.logs(self.trial.id)]

    def reporting(self, end: Exit, group: str = "training", **metrics: Any) -> Step:
        """Return a step whose workers report metrics."""

        def work(request: LaunchRequest) -> Exit:
            report_metrics(self.store, request, group, 4, **metrics)
            return end

        return work

    def saving(self, end: Exit, steps: int) -> Callable[[LaunchRequest], Exit]:
        """Return a step whose workers save a checkpoint."""

        def work(request: LaunchRequest) -> Exit:
            save_checkpoint(self.store, request, steps)
            return end

        return work

    def calling(self, method: str, *args: Any, end: Exit | Exception = SUCCESS) -> Step:
        """Return a step whose workers call a method of the store for their run."""

        def work(request: LaunchRequest) -> Exit | Exception:
            ids = run_ids(request)
            getattr(self.store, method)(ids["trial_id"], ids["run_id"], *args)
            return end

        return work


@pytest.fixture
def play(store: TrackingStore, tmp_path: Path) -> Callable[..., Play]:
    return lambda **keys: Play(store, tmp_path / "checkpoints", **keys)


@pytest.fixture(autouse=True)
def delays(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Do not wait between launches, and return the numbers of seconds that were not waited."""
    skipped: list[float] = []
    monkeypatch.setattr(TrialRunner, "_delay", lambda self, run, what, seconds, requested: skipped.append(seconds))
    monkeypatch.setattr(_launch_supervision, "_TICK", 0.01)
    return skipped


def test_a_launch_describes_the_trial(play: Callable[..., Play]) -> None:
    one = play(resources={"priority": 7}, environment={"environment_variables": ["COLOR=red"]})
    assert one.run(SUCCESS).outcome is TrainingOutcome.COMPLETED
    (request,) = one.launcher.requests
    assert list(request.argv) == [PYTHON, "-m", "det_core.launch.worker"]
    assert (request.key, request.code, request.slots, request.priority, request.env["COLOR"]) == (
        f"{one.store.cluster_id}-exp-{one.experiment.id}-trial-{one.trial.id}", b"code", 1, 7, "red",
    )  # fmt: skip
    assert request.submitted == one.experiment.start_time
    trial = request.info["trial.json"]
    assert trial["config"] == one.config.dump()
    assert [trial[name] for name in ("trial_id", "trial_seed", "hparams", "steps_completed", "trial_run_id")] == [
        one.trial.id, 3, {"lr": 0.1}, 0, 1,
    ]  # fmt: skip
    assert request.info["cluster.json"]["latest_checkpoint"] is None
    assert one.log == [
        f"run 1 of trial {one.trial.id} starts from the beginning",
        f"run 1 of trial {one.trial.id} exited with code 0",
    ]
    (run,) = one.store.runs(one.trial.id)
    assert (run.end_reason, run.end_time is not None, one.record.state) == ("", True, State.ACTIVE)


@pytest.mark.parametrize(
    ("entrypoint", "argv"),
    [
        ("python3 train.py | cat", ["/bin/sh", "-c", "python3 train.py | cat"]),
        (["./train.sh", "1"], ["./train.sh", "1"]),
    ],
)
def test_a_command_is_launched_as_given(play: Callable[..., Play], entrypoint: Any, argv: list[str]) -> None:
    one = play(entrypoint=entrypoint)
    assert one.run(SUCCESS).outcome is TrainingOutcome.COMPLETED
    assert list(one.launcher.requests[0].argv) == argv


def test_a_completed_trial_has_the_metric_of_its_last_validation(play: Callable[..., Play]) -> None:
    one = play()

    def validate(request: LaunchRequest) -> Exit:
        for steps, loss in ((4, 0.25), (8, 0.5)):
            report_metrics(one.store, request, "validation", steps, loss=loss, f1=9)
        return SUCCESS

    assert one.run(validate) == TrainingResult(TrainingOutcome.COMPLETED, metric=0.5)


@pytest.fixture
def ordered(play: Callable[..., Play]) -> Play:
    """Return a play whose trial has an order of the search."""
    one = play()
    new = NewTrial(hparams={}, seed=3, source_checkpoint=None)
    update = TrialUpdate(request_id=0, state=State.QUEUED, new=new, ordered=0, length=20)
    (one.trial,) = one.store.record_search(one.experiment.id, [], [update], lease="test")
    return one


def completing(one: Play, end: Exit | Exception) -> Step:
    """Return a step whose workers complete their order beyond their last checkpoint."""

    def work(request: LaunchRequest) -> Exit | Exception:
        save_checkpoint(one.store, request, 16)
        report_metrics(one.store, request, "validation", 20, loss=0.5)
        one.store.complete_searcher_operation(**run_ids(request), length=20, metric=0.125)
        return end

    return work


def test_a_completed_operation_has_the_metric_of_its_report(ordered: Play) -> None:
    assert ordered.run(completing(ordered, SUCCESS)).metric == 0.125


def test_an_operation_that_was_completed_before_the_runner_died_is_not_launched_again(ordered: Play) -> None:
    with pytest.raises(StoreBusy):
        ordered.run(completing(ordered, StoreBusy("the runner ends")))
    assert ordered.run() == TrainingResult(TrainingOutcome.COMPLETED, metric=0.125)
    assert (ordered.record.run_id, ordered.record.steps_completed) == (1, 20)
    assert len(list(ordered.store.metrics(ordered.trial.id))) == 1
    (run,) = ordered.store.runs(ordered.trial.id)
    assert (run.end_time is not None, run.end_reason) == (True, "")


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        (EarlyExitReason.USER_REQUESTED_STOP, TrainingOutcome.STOPPED),
        (EarlyExitReason.INVALID_HP, TrainingOutcome.INVALID_HP),
    ],
)
def test_a_trial_that_ended_early_before_the_runner_died_is_not_launched_again(
    ordered: Play, reason: EarlyExitReason, outcome: TrainingOutcome
) -> None:
    """It would train beyond its end. If the search starts over, as with a longer length, it is launched."""
    with pytest.raises(StoreBusy):
        ordered.run(ordered.calling("report_early_exit", reason.value, end=StoreBusy("the runner ends")))
    assert ordered.run().outcome is outcome
    assert ordered.store.run(ordered.trial.id, 1).end_time is not None
    ordered.store.forget_search(ordered.experiment.id)
    assert ordered.run(SUCCESS).outcome is TrainingOutcome.COMPLETED


def test_what_an_extension_reported_that_is_undone_does_not_count(ordered: Play) -> None:
    def order(length: int) -> None:
        update = TrialUpdate(request_id=0, state=State.QUEUED, ordered=0, length=length)
        (ordered.trial,) = ordered.store.record_search(ordered.experiment.id, [], [update], lease="test")

    def extend(request: LaunchRequest) -> Exit:
        report_metrics(ordered.store, request, "training", 25, loss=0.5)
        return Exit(code=EXIT_DO_NOT_RESTART)

    assert ordered.run(completing(ordered, SUCCESS)).outcome is TrainingOutcome.COMPLETED
    order(30)
    assert ordered.run(extend).outcome is TrainingOutcome.FAILED
    order(20)
    assert ordered.run(SUCCESS).outcome is TrainingOutcome.COMPLETED
    assert (ordered.record.run_id, ordered.record.steps_completed) == (3, 16)
    assert not list(ordered.store.metrics(ordered.trial.id))


@pytest.mark.parametrize("acknowledged", [True, False])
def test_what_follows_a_completed_operation_is_tried_again_without_a_loss_of_metrics(
    ordered: Play, acknowledged: bool
) -> None:
    """Workers may fail, or be requested to stop, after they have completed their last operation."""

    def work(request: LaunchRequest) -> Exit:
        completing(ordered, SUCCESS)(request)  # type: ignore[operator]
        if acknowledged:
            ordered.store.acknowledge_preemption(**run_ids(request))
        return SUCCESS if acknowledged else FAILURE

    assert ordered.run(work, SUCCESS).outcome is TrainingOutcome.COMPLETED
    assert (ordered.record.run_id, ordered.record.steps_completed) == (2, 20)
    assert len(list(ordered.store.metrics(ordered.trial.id))) == 1


def test_a_validation_without_the_metric_is_named(play: Callable[..., Play]) -> None:
    one = play()
    assert math.isnan(one.run(one.reporting(SUCCESS, "validation", los=0.5, f1=0.1)).metric)
    assert one.log[-1] == (
        f"trial {one.trial.id}: WARNING: it reported no number as 'loss', which is searcher.metric, but 'los', 'f1'; "
        "did you mean 'los'?"
    )
    assert math.isnan(play().run(SUCCESS).metric)


@pytest.mark.parametrize(
    ("reason", "end", "outcome"),
    [
        (EarlyExitReason.INVALID_HP, FAILURE, TrainingOutcome.INVALID_HP),
        (EarlyExitReason.USER_REQUESTED_STOP, SUCCESS, TrainingOutcome.STOPPED),
    ],
)
def test_workers_may_end_a_trial_early(
    play: Callable[..., Play], reason: EarlyExitReason, end: Exit, outcome: TrainingOutcome
) -> None:
    one = play()
    assert one.run(one.calling("report_early_exit", reason.value, end=end)).outcome is outcome
    assert (one.record.restarts, one.record.interruptions) == (0, 0)


def test_a_trial_that_stopped_on_request_starts_again(play: Callable[..., Play]) -> None:
    one = play(max_restarts=0)
    assert one.run(one.calling("acknowledge_preemption"), SUCCESS).outcome is TrainingOutcome.COMPLETED
    assert (one.record.run_id, one.record.restarts) == (2, 0)


def test_failures_count_up_to_max_restarts(play: Callable[..., Play]) -> None:
    one = play(max_restarts=2)
    result = one.run(*[one.reporting(FAILURE, loss=number) for number in range(3)])
    assert (result.outcome, result.error, result.trained) == (
        TrainingOutcome.FAILED,
        "the worker exited with code 1",
        True,
    )
    assert (one.record.run_id, one.record.restarts) == (3, 3)
    runs = one.store.runs(one.trial.id)
    assert [run.end_reason for run in runs] == ["the worker exited with code 1"] * 3
    assert [(run.exit_code, run.cause, run.slots) for run in runs] == [(1, "", 1)] * 3
    assert f"run 2 of trial {one.trial.id} exited with code 1" in one.log


def test_a_signal_is_a_failure_that_is_named(play: Callable[..., Play]) -> None:
    one = play(max_restarts=0)
    assert one.run(Exit(code=-9)).error == "the worker was terminated by signal 9"


def failing(*lines: tuple[int | None, str]) -> Step:
    """Return a step whose workers print lines to stderr and fail."""

    def work(request: LaunchRequest) -> Exit:
        for rank, line in lines:
            request.log(rank, "stderr", line)
        return FAILURE

    return work


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        ([(0, "boom")], "boom"),
        ([(None, "boom"), (0, f"{FAILURE_PREFIX}rank 1: it exited with 3"), (0, "later")], "rank 1: it exited with 3"),
        ([(0, f"{FAILURE_PREFIX}PeerLost: rank 1 died"), (1, f"{FAILURE_PREFIX}ValueError: x")], "ValueError: x"),
        ([(0, "Traceback (most recent call last):"), (0, "  at"), (0, "ValueError: x"), (0, "bye")], "ValueError: x"),
        (
            [
                (None, f"{FAILURE_PREFIX}rank {rank}: {error}")
                for rank, error in [(1, "PeerLost: rank 0"), (0, "OSError")]
            ],
            "rank 0: OSError",
        ),
    ],
)
def test_the_reason_of_a_failure_is_what_the_workers_say(
    play: Callable[..., Play], lines: list[tuple[int | None, str]], error: str
) -> None:
    assert play(max_restarts=0).run(failing(*lines)).error == error


def test_the_same_failure_twice_before_the_first_batch_ends_a_trial(play: Callable[..., Play]) -> None:
    one = play(max_restarts=5)
    result = one.run(*[failing((0, f"ValueError: the shape of <object at 0x7f{n}> is wrong")) for n in (1, 2)])
    assert (result.outcome, result.trained, one.record.restarts) == (TrainingOutcome.FAILED, False, 2)
    assert one.log[-1] == (
        f"trial {one.trial.id}: it failed in the same way twice, so it is not restarted (see restart_repeated_failures)"
    )


@pytest.mark.parametrize(
    ("failures", "runs"),
    [
        ([(30, "boom"), (30, "boom")], 2),
        ([(30, "boom"), (31, "boom"), (31, "boom")], 3),
        ([(30, "boom"), (30, "bang"), (30, "bang")], 3),
        ([(30, "boom"), (20, "saved"), (30, "boom"), (30, "boom")], 4),
        ([(30, "boom"), (10, "killed"), (30, "boom")], 3),
        ([(30, "the disk quota exceeded")] * 5, None),
        ([(30, "the network is down")] * 5, 5),
    ],
    ids=["same", "other batch", "other message", "other checkpoint", "killed between", "disk", "network"],
)
def test_the_same_failure_twice_at_the_same_batch_ends_a_trial(
    play: Callable[..., Play], failures: list[tuple[int, str]], runs: int | None
) -> None:
    one = play(max_restarts=4)

    def step(number: int, batch: int, what: str) -> Step:
        def work(request: LaunchRequest) -> Exit:
            report_metrics(one.store, request, "training", batch, n=number)
            if what == "saved":
                save_checkpoint(one.store, request, batch)
            if what in ("saved", "killed"):
                return Exit(code=-9)
            return failing((0, f"{FAILURE_PREFIX}rank {number}: RuntimeError: {what} (batch {batch}, m.py:7)"))(request)  # type: ignore[operator,return-value]

        return work

    steps = [step(number, *failure) for number, failure in enumerate(failures)]
    result = one.run(*steps, *([] if runs else [SUCCESS]))
    assert result.outcome is (TrainingOutcome.FAILED if runs else TrainingOutcome.COMPLETED)
    assert one.record.restarts == (runs or 0)


@pytest.mark.parametrize(
    "steps",
    [
        [failing((0, f"ValueError: {n}")) for n in range(4)],
        [failing((0, "ConnectionError: the file server is away"))] * 4,
        [Exit(code=-9)] * 4,
        [Exit(code=137)] * 4,
    ],
    ids=["different errors", "a passing error", "killed", "killed below a shell"],
)
def test_failures_that_may_pass_are_repeated(play: Callable[..., Play], steps: list[Step]) -> None:
    one = play(max_restarts=3)
    assert one.run(*steps).outcome is TrainingOutcome.FAILED
    assert one.record.restarts == 4


def test_failures_after_the_first_batch_are_repeated(play: Callable[..., Play]) -> None:
    one = play(max_restarts=3)
    assert one.run(*[one.saving(FAILURE, number) for number in range(4)]).outcome is TrainingOutcome.FAILED
    assert one.record.restarts == 4


@pytest.mark.parametrize(
    ("entrypoint", "seconds", "failures"), [("train", 59, 2), ("train", 61, 3), ("model_def:T", 61, 2)]
)
def test_a_command_that_ran_for_a_minute_may_have_trained(
    play: Callable[..., Play], monkeypatch: pytest.MonkeyPatch, entrypoint: str, seconds: float, failures: int
) -> None:
    one, now = play(entrypoint=entrypoint, max_restarts=2), [0.0]
    monkeypatch.setattr(_trial_history, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def fail(request: LaunchRequest) -> Exit:
        now[0] += seconds
        return FAILURE

    assert one.run(*[fail] * failures).trained == (failures == 3)
    assert one.record.restarts == failures


def test_a_failure_that_no_restart_fixes_is_not_repeated(play: Callable[..., Play]) -> None:
    one = play(max_restarts=5)
    assert one.run(Exit(code=EXIT_DO_NOT_RESTART)).outcome is TrainingOutcome.FAILED
    assert one.record.restarts == 1


@pytest.mark.parametrize("code", [126, 127])
def test_a_command_that_does_not_start_is_not_repeated(play: Callable[..., Play], code: int) -> None:
    for entrypoint, shown in (("train --x", "'train --x'"), (["train", "a b"], "\"train 'a b'\"")):
        one = play(max_restarts=5, entrypoint=entrypoint)
        error = str(one.run(Exit(code=code)).error)
        assert error.startswith(f"the entrypoint {shown} could not be started (exit code {code}: the worker exited")
        assert str(Path(sys.executable).parent) in error
        assert one.record.restarts == 1
    one = play(max_restarts=1)  # a trial class may exit with any code
    assert (
        one.run(*[one.reporting(Exit(code=code), loss=n) for n in (1, 2)]).error
        == f"the worker exited with code {code}"
    )


@pytest.mark.parametrize("cause", INTERRUPTIONS)
def test_interruptions_use_up_no_restart(play: Callable[..., Play], delays: list[float], cause: Cause) -> None:
    one = play(max_restarts=0)
    assert one.run(*[ended_by(cause)] * 5, SUCCESS).outcome is TrainingOutcome.COMPLETED
    assert (one.record.restarts, one.record.interruptions) == (0, 5)
    assert delays == [1, 2, 4, 8, 16]
    assert f"run 1 of trial {one.trial.id} exited with code 1 ({cause.value}: says the engine)" in one.log
    assert f"trial {one.trial.id}: it starts again in 2 s" in one.log


def test_interruptions_have_a_limit_of_their_own(play: Callable[..., Play]) -> None:
    one = play(launcher={"type": "local", "max_interruptions": 2}, max_restarts=0)
    result = one.run(*[ended_by(Cause.NODE_LOST)] * 3)
    assert result.outcome is TrainingOutcome.FAILED
    assert result.error == "node lost: says the engine; launcher.max_interruptions is 2"
    assert not result.trained


def test_interruptions_and_failures_count_separately(play: Callable[..., Play]) -> None:
    one = play(launcher={"type": "local", "max_interruptions": 1}, max_restarts=1)
    assert one.run(ended_by(Cause.NODE_LOST), FAILURE, SUCCESS).outcome is TrainingOutcome.COMPLETED
    assert (one.record.run_id, one.record.restarts, one.record.interruptions) == (3, 1, 1)


def test_delays_begin_again_after_a_long_run(
    play: Callable[..., Play], delays: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = play()
    now = [0.0]
    monkeypatch.setattr(_trial_history, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def after(seconds: float) -> Step:
        def work(request: LaunchRequest) -> Exit:
            now[0] += seconds
            return ended_by(Cause.NODE_LOST)

        return work

    one.run(*[after(300)] * 3, after(301), after(1), SUCCESS)
    assert delays == [1, 2, 4, 1, 2]


def test_interruptions_without_progress_end_a_trial(play: Callable[..., Play], delays: list[float]) -> None:
    one = play(max_restarts=0)
    result = one.run(*[ended_by(Cause.NODE_LOST)] * 21)
    assert (result.outcome, result.trained) == (TrainingOutcome.FAILED, False)
    assert str(result.error).startswith("node lost: says the engine; it was interrupted 21 times in a row without")


@pytest.mark.parametrize("how", ["a checkpoint", "a batch", "a command that runs for a minute"])
def test_progress_allows_further_interruptions(
    play: Callable[..., Play], delays: list[float], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    one = play(entrypoint="train") if how == "a command that runs for a minute" else play()
    lost, now = ended_by(Cause.NODE_LOST), [0.0]
    monkeypatch.setattr(_trial_history, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setitem(LIMITS, Count.IDLE_INTERRUPTIONS, 3)

    def run_for_a_minute(request: LaunchRequest) -> Exit:
        now[0] += 61
        return lost

    progress = {"a checkpoint": one.saving(lost, 4), "a batch": one.reporting(lost, loss=1)}.get(how, run_for_a_minute)
    assert one.run(*[lost] * 2, progress, *[lost] * 3, SUCCESS).outcome is TrainingOutcome.COMPLETED


def test_batches_that_are_lost_again_and_again_are_no_progress(
    play: Callable[..., Play], delays: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LIMITS, Count.IDLE_INTERRUPTIONS, 3)
    one = play()
    result = one.run(*[one.reporting(ended_by(Cause.NODE_LOST), loss=1)] * 5)
    assert (result.outcome, result.trained) == (TrainingOutcome.FAILED, True)


def test_a_trial_that_stops_again_and_again_without_a_request_fails(
    play: Callable[..., Play], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LIMITS, Count.IDLE_INTERRUPTIONS, 3)
    one = play()
    result = one.run(*[one.calling("acknowledge_preemption")] * 4)
    assert (result.outcome, one.record.interruptions) == (TrainingOutcome.FAILED, 0)


@pytest.mark.parametrize(("stop_at", "end"), [(None, 3.0), (1.5, 2.0)])
def test_a_delay_is_shown_until_it_is_over_or_a_stop_is_requested(
    store: TrackingStore, monkeypatch: pytest.MonkeyPatch, stop_at: float | None, end: float
) -> None:
    experiment = store.create_experiment(config={}).id
    trial = [store.create_trial(experiment, hparams={}, seed=0).id for _ in range(2)][1]
    run, now, shown = store.start_run(trial, allocation_id="a"), 0.0, []

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        shown.append(store.trial(trial).placement)

    monkeypatch.setattr(_trial_runner, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    monkeypatch.setattr(_trial_runner, "_TICK", 1.0)
    requested = lambda: State.PAUSED if stop_at and now > stop_at else None  # noqa: E731
    DELAY(SimpleNamespace(store=store), run, "interrupted, starts again", 3.0, requested)  # type: ignore[arg-type]
    assert now == end
    assert shown[0] == "interrupted, starts again in 3 s"
    assert store.trial(trial).placement == ""


def test_out_of_memory_is_a_failure(play: Callable[..., Play]) -> None:
    one = play(max_restarts=0)
    assert one.run(ended_by(Cause.OUT_OF_MEMORY, code=-9)).error == "out of memory: says the engine"
    (run,) = one.store.runs(one.trial.id)
    assert (run.exit_code, run.cause) == (-9, "out of memory")
    assert (one.record.restarts, one.record.interruptions) == (1, 0)


def test_a_canceled_launch_pauses(play: Callable[..., Play]) -> None:
    one = play()
    result = one.run(ended_by(Cause.CANCELED))
    assert (result.outcome, result.error) == (TrainingOutcome.PAUSED, "canceled: says the engine")
    assert (one.record.restarts, one.record.interruptions) == (0, 0)


def test_a_launch_that_fails_is_repeated_in_the_same_run(play: Callable[..., Play], delays: list[float]) -> None:
    one = play()
    steps = LaunchDelayed("busy"), ended_by(Cause.NOT_STARTED), OSError("no disk"), SUCCESS
    assert one.run(*steps).outcome is TrainingOutcome.COMPLETED
    assert (one.record.run_id, one.record.restarts, one.record.interruptions, delays) == (1, 0, 0, [1, 2, 4])
    problems = "busy", "says the engine", "the launcher raised OSError: no disk"
    expected = [f"not started yet, trying again: {problem}" for problem in problems]
    assert [line for line in one.log if line.startswith("not started")] == expected
    assert "Traceback (most recent call last):" in one.log


def test_a_launcher_that_does_not_know_its_device_yet_is_asked_again(
    play: Callable[..., Play], delays: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[str] = []

    def find_device(self: PlayedLauncher) -> str:
        answers.append("cpu")
        if len(answers) == 1:
            raise LaunchDelayed("the cluster does not answer")
        return answers[0]

    monkeypatch.setattr(PlayedLauncher, "device", find_device)
    assert (play().run(SUCCESS).outcome, delays) == (TrainingOutcome.COMPLETED, [1])


def test_a_launch_is_repeated_for_a_minute(
    play: Callable[..., Play], delays: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_trial_history, "time", SimpleNamespace(monotonic=lambda: sum(delays)))
    one = play()
    result = one.run(*[LaunchDelayed("busy")] * 7)
    assert (result.outcome, result.error) == (TrainingOutcome.POSTPONED, "busy")
    assert delays == [1, 2, 4, 8, 16, 32]
    assert one.log[-1] == f"run 1 of trial {one.trial.id} could not be started: busy"


@pytest.mark.parametrize(
    ("problem", "outcome"),
    [
        (LaunchError("no such node"), TrainingOutcome.POSTPONED),
        (PluginError("broken"), TrainingOutcome.FAILED),
        (InvalidExperimentException("impossible"), TrainingOutcome.FAILED),
    ],
)
def test_a_launch_that_would_fail_again_is_not_repeated(
    play: Callable[..., Play], problem: Exception, outcome: TrainingOutcome
) -> None:
    one = play()
    result = one.run(problem)
    assert (result.outcome, result.error, result.trained) == (outcome, str(problem), False)
    assert one.log[-1] == f"run 1 of trial {one.trial.id} could not be started: {problem}"
    assert [(run.end_reason, run.exit_code, run.slots) for run in one.store.runs(one.trial.id)] == [
        (str(problem), None, 0)
    ]


@pytest.mark.parametrize("error", [KeyError, LaunchError, LaunchDelayed])
def test_an_error_of_the_launcher_ends_its_launch_only(play: Callable[..., Play], error: type[Exception]) -> None:
    """Those that say that nothing was started have no meaning once the workers run."""
    one = play(max_restarts=0)
    result = one.run(Raising("wait", error=error), Raising("close", SUCCESS))
    assert (result.outcome, one.record.interruptions) == (TrainingOutcome.COMPLETED, 1)
    assert [each.calls for each in one.launcher.allocations] == [["kill", "close"], ["close"]]
    explained = error is not KeyError
    reason = "a defect of wait" if explained else "the launcher raised KeyError: 'a defect of wait'"
    assert [run.end_reason for run in one.store.runs(one.trial.id)] == [f"node lost: {reason}", ""]
    assert {"KeyError: 'a defect of close'", *([] if explained else ["KeyError: 'a defect of wait'"])} <= {*one.log}


def test_a_launch_that_has_its_slots_must_start(
    play: Callable[..., Play], delays: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may wait for slots for any time."""
    monkeypatch.setattr(_launch_supervision, "_START_SECONDS", -1.0)
    phases = iter([Phase.QUEUED, Phase.QUEUED, Phase.STARTING])
    monkeypatch.setattr(PlayedAllocation, "status", lambda self: Status(phase=next(phases, Phase.RUNNING)))
    one = play()
    assert (one.run(None, SUCCESS).outcome, delays) == (TrainingOutcome.COMPLETED, [1])
    assert one.launcher.allocations[0].calls == ["kill", "close"]
    assert "not started yet, trying again: it has its slots, but has not started within -1 s" in one.log


@pytest.mark.parametrize("broken", ["preempt", "kill", "status"])
def test_a_launch_that_cannot_be_stopped_orderly_is_ended(play: Callable[..., Play], broken: str) -> None:
    one = play(preemption_timeout=0)

    def run_on(request: LaunchRequest) -> Raising:
        one.request = State.STOPPING_CANCELED
        return Raising(broken)

    assert one.run(run_on).outcome is TrainingOutcome.INTERRUPTED
    assert one.launcher.allocations[0].calls[-2:] == ["kill", "close"]


def test_a_trial_without_a_thread_for_its_log_is_postponed(
    play: Callable[..., Play], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: LogWriter) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(LogWriter, "__enter__", refuse)
    one = play()
    result = one.run()
    assert (result.outcome, result.error) == (TrainingOutcome.POSTPONED, "RuntimeError: can't start new thread")
    assert [run.end_time is not None for run in one.store.runs(one.trial.id)] == [True]


def test_a_run_starts_from_the_newest_checkpoint(play: Callable[..., Play]) -> None:
    one = play()
    one.run(one.saving(FAILURE, 4), one.saving(FAILURE, 8), SUCCESS)
    starts = [
        (request.info["cluster.json"]["latest_checkpoint"], request.info["trial.json"]["steps_completed"])
        for request in one.launcher.requests
    ]
    assert starts == [(None, 0), ("after-4-in-1", 4), ("after-8-in-1", 8)]
    assert f"run 3 of trial {one.trial.id} starts from checkpoint after-8-in-1 after 8 batches" in one.log


def test_a_damaged_checkpoint_costs_no_restart(play: Callable[..., Play]) -> None:
    one = play(max_restarts=1)

    def find_damage(request: LaunchRequest) -> Exit:
        one.store.fail_checkpoint(request.info["cluster.json"]["latest_checkpoint"], "a byte is wrong")
        return FAILURE

    def fail_after_two(request: LaunchRequest) -> Exit:
        one.saving(SUCCESS, 4)(request)
        one.saving(SUCCESS, 8)(request)
        return FAILURE

    assert one.run(fail_after_two, find_damage, SUCCESS).outcome is TrainingOutcome.COMPLETED
    assert (one.record.run_id, one.record.restarts) == (3, 1)
    assert one.launcher.requests[2].info["cluster.json"]["latest_checkpoint"] == "after-4-in-1"
    assert (
        "WARNING: checkpoint after-8-in-1 after 8 batches is damaged (a byte is wrong); this run starts from "
        "checkpoint after-4-in-1 after 4 batches instead, which does not count as a restart"
    ) in one.log


def test_a_trial_without_checkpoints_waits_unless_it_may_begin_again(play: Callable[..., Play]) -> None:
    one = play(max_restarts=9)

    def lose(request: LaunchRequest) -> Exit:
        for checkpoint in one.store.checkpoints(trial_id=one.trial.id):
            one.store.fail_checkpoint(checkpoint.uuid, "lost")
        return FAILURE

    result = one.run(one.saving(FAILURE, 4), lose)
    assert result.outcome is TrainingOutcome.PAUSED
    assert f"det experiment resume {one.experiment.id} --from-beginning" in str(result.error)
    assert one.run(SUCCESS, from_beginning=True).outcome is TrainingOutcome.COMPLETED
    states = [one.state for one in one.store.checkpoints(trial_id=one.trial.id, states=list(CheckpointState))]
    assert states == [CheckpointState.ERROR]


def test_no_launch_follows_a_request_to_stop(play: Callable[..., Play]) -> None:
    one = play()
    one.request = State.PAUSED
    assert one.run().outcome is TrainingOutcome.INTERRUPTED
    other = play()
    other.store.set_trial_state(other.trial.id, State.ACTIVE)
    other.store.set_trial_state(other.trial.id, State.STOPPING_KILLED)
    assert other.run().outcome is TrainingOutcome.INTERRUPTED
    assert other.record.state is State.STOPPING_KILLED


@pytest.mark.parametrize("end", [FAILURE, ended_by(Cause.NODE_LOST), LaunchError("no"), LaunchDelayed("no")], ids=repr)
def test_an_end_after_a_request_is_neither_a_failure_nor_an_interruption(
    play: Callable[..., Play], end: Exit | Exception
) -> None:
    one = play()

    def request(_: LaunchRequest) -> Exit | Exception:
        one.request = State.STOPPING_CANCELED
        return end

    assert one.run(request).outcome is TrainingOutcome.INTERRUPTED
    assert (one.record.restarts, one.record.interruptions) == (0, 0)


@pytest.mark.parametrize(
    ("request_", "timeout", "calls"),
    [
        (State.PAUSED, 600, ["preempt", "close"]),
        (State.STOPPING_CANCELED, 0, ["preempt", "kill", "close"]),
        (State.STOPPING_KILLED, 600, ["preempt", "kill", "close"]),
    ],
)
def test_a_running_launch_is_requested_to_stop_and_killed_in_time(
    play: Callable[..., Play], request_: State, timeout: float, calls: list[str]
) -> None:
    one = play(preemption_timeout=timeout)

    def run_on(request: LaunchRequest) -> None:
        one.request = request_
        one.store.acknowledge_preemption(**run_ids(request))

    assert one.run(run_on, stops="kill" not in calls).outcome is TrainingOutcome.INTERRUPTED
    assert one.launcher.allocations[0].calls == calls


@pytest.mark.integration
def test_lines_that_cannot_be_stored_end_the_run(play: Callable[..., Play], monkeypatch: pytest.MonkeyPatch) -> None:
    one = play()

    def refuse(lines: Any) -> None:
        raise StoreBusy("the disk is full")

    monkeypatch.setattr(one.store, "add_logs", refuse)
    with pytest.raises(StoreBusy, match="the disk is full"):
        one.run(None)


ELASTIC: dict[str, Any] = {
    "hyperparameters": {"global_batch_size": 8},
    "resources": {"slots_per_trial": 4, "min_slots_per_trial": 1, "elastic_timeout": 0},
    "distributed": {"backend": "torch_distributed"},
}


def test_an_elastic_trial_starts_on_what_the_launcher_accepts(elastic: Play) -> None:
    """A refused launch is one on fewer slots at once, and a launch that is not started becomes one."""
    refusal, delay = LaunchError("the trial needs 4 slots, but the launcher has 3"), LaunchDelayed("no slot is free")
    assert elastic.run(refusal, delay, SUCCESS).outcome is TrainingOutcome.COMPLETED
    assert [request.slots for request in elastic.launcher.requests] == [4, 2, 1]
    assert elastic.log[1:4] == [
        "it needs 4 of 4 slots",
        "not started on 4 slots: the trial needs 4 slots, but the launcher has 3",
        "it needs 2 of 4 slots",
    ]


def test_an_elastic_trial_that_no_number_of_slots_lets_start_is_postponed(elastic: Play) -> None:
    result = elastic.run(*(LaunchError(f"no {count} slots") for count in (4, 2, 1)))
    assert (result.outcome, result.error) == (TrainingOutcome.POSTPONED, "no 1 slots")


def test_an_elastic_trial_yields_to_have_more_slots(elastic: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops as for a pause, and no restart or interruption is counted."""

    def available(launcher: PlayedLauncher, request: LaunchRequest) -> int:
        return 4 - request.slots * any(one.end is None for one in launcher.allocations)

    monkeypatch.setattr(PlayedLauncher, "available_slots", available)

    def yield_to_more(request: LaunchRequest) -> None:
        ids = run_ids(request)
        save_checkpoint(elastic.store, request, 4)
        elastic.store.acknowledge_preemption(ids["trial_id"], ids["run_id"])

    assert elastic.run(LaunchError("too many"), yield_to_more, SUCCESS, stops=True).outcome is TrainingOutcome.COMPLETED
    assert [request.slots for request in elastic.launcher.requests] == [4, 2, 4]
    assert elastic.launcher.allocations[0].calls == ["preempt", "close"]
    assert (elastic.record.restarts, elastic.record.run_id) == (0, 2)


@pytest.fixture
def elastic(play: Callable[..., Play]) -> Play:
    one = play(**ELASTIC)
    one.trial = one.store.create_trial(one.experiment.id, hparams={"global_batch_size": 8}, seed=3)
    return one


def test_an_elastic_trial_is_adopted_on_the_slots_that_it_has(elastic: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number is recorded before the launch, for the next runner and for pages. The trial grows again later."""
    elastic.adopts = True

    def freeze(request: LaunchRequest) -> None:
        elastic.store.release_lease(elastic.experiment.id, "test")
        elastic.request = State.PAUSED

    with pytest.raises(StaleRun):
        elastic.run(LaunchError("too many"), freeze)
    elastic.request = None
    assert elastic.store.run(elastic.trial.id, 1).slots == 2
    elastic.store.acquire_lease(elastic.experiment.id, "test", seconds=600)
    adopted: list[LaunchRequest] = []

    def adopt(launcher: PlayedLauncher, request: LaunchRequest, number: float) -> Any:
        adopted.append(request)
        save_checkpoint(elastic.store, request, 4)
        elastic.store.acknowledge_preemption(**run_ids(request))
        return PlayedAllocation(None if request.slots == 2 else FAILURE, stops=True)

    monkeypatch.setattr(PlayedLauncher, "adopt", adopt)
    monkeypatch.setattr(PlayedLauncher, "available_slots", lambda *_: 4)
    assert elastic.run(SUCCESS, stops=True).outcome is TrainingOutcome.COMPLETED
    assert [request.slots for request in (*adopted, *elastic.launcher.requests)] == [2, 4]
    assert [run.slots for run in elastic.store.runs(elastic.trial.id)] == [2, 4]


@pytest.mark.parametrize(
    ("adopts", "request_", "step", "calls"),
    [
        (True, State.PAUSED, None, ["hand_over", "close"]),
        (True, State.STOPPING_KILLED, None, ["hand_over", "close"]),
        (True, None, Raising("status"), ["hand_over", "close"]),
        (True, None, Raising("wait"), ["hand_over", "close"]),
        (False, State.STOPPING_KILLED, None, ["preempt", "kill", "close"]),
    ],
)
def test_a_runner_that_was_replaced_leaves_its_workers_to_the_next_one(
    play: Callable[..., Play], *, adopts: bool, request_: State | None, step: Any, calls: list[str]
) -> None:
    """A runner that was frozen may find this out only when it wants to end them."""
    one = play()
    one.adopts = adopts

    def freeze(request: LaunchRequest) -> Any:
        one.store.release_lease(one.experiment.id, "test")
        one.store.acquire_lease(one.experiment.id, "next", seconds=600)
        one.request = request_
        return step

    with pytest.raises(StaleRun):
        one.run(freeze)
    (allocation,) = one.launcher.allocations
    assert allocation.calls == calls


def test_a_runner_that_was_replaced_starts_nothing_that_another_one_may_adopt(
    play: Callable[..., Play], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = play()
    one.adopts = True
    started = one.store.start_run

    def freeze(*args: Any, **fields: Any) -> Any:
        run = started(*args, **fields)
        one.store.release_lease(one.experiment.id, "test")
        return run

    monkeypatch.setattr(one.store, "start_run", freeze)
    with pytest.raises(StaleRun):
        one.run()


def test_a_run_that_was_not_adopted_before_a_pause_starts_no_other(
    play: Callable[..., Play], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = play()
    one.adopts = True
    one.store.start_run(one.trial.id, allocation_id="a", lease="test")

    def adopt(launcher: PlayedLauncher, request: LaunchRequest, number: float) -> Any:
        one.request = State.PAUSED
        return PlayedAllocation(ended_by(Cause.NOT_STARTED), stops=False)

    monkeypatch.setattr(PlayedLauncher, "adopt", adopt)
    assert one.run().outcome is TrainingOutcome.INTERRUPTED
    assert [run.run_id for run in one.store.runs(one.trial.id)] == [1]
