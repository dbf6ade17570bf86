"""Output of an experiment with one trial, as lines or as a live line, and the closing summary."""

from __future__ import annotations

import io
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from rich.console import Console

from det_core.cli.render import experiment_progress
from det_core.cli.render.experiment_summary import _how_to_load, summarize_experiment, summary_lines
from det_core.cli.render.live_trial import LiveTrial
from det_core.cli.render.sanitized_streams import sanitize_streams
from det_core.cli.render.trial_watcher import TrialWatcher
from det_core.core._progress_line import Pace
from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.metric_directions import missing_direction
from det_core.package_commands import package_command
from det_core.plugins import plugin_registry
from det_core.text import format_table

from .conftest import CONFIG, Record


def test_logs_and_reports_are_printed_as_lines(record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    with experiment_progress.show_progress(TrialWatcher(record.store, 1)) as tick:
        record.log("\x1b[1mhello\x1b[0m\r\n")
        record.report(300, loss=0.123456, note="fine", ignored=[1, 2])
        record.report(300, "validation", accuracy=0.9)
        record.report(300, "gpu", util=50)
        tick()
        tick()
        record.report(400, loss=0.1)
    assert capsys.readouterr().out.splitlines() == [
        "[trial 1] [rank=0] hello",
        "trial 1: batch 300/1000 training loss=0.1235 note=fine",
        "trial 1: batch 300/1000 validation accuracy=0.9",
        "trial 1: batch 400/1000 training loss=0.1",
    ]


def test_lines_replace_the_live_line_without_rich(
    record: Record, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with experiment_progress.show_progress(TrialWatcher(record.store, 1)):
        record.log("hello")
    out, err = capsys.readouterr()
    assert out == "[trial 1] [rank=0] hello\n"
    assert err.splitlines() == [
        "det: live progress and colours in a terminal need rich, which is not installed; "
        f"type: {package_command('install', 'det-core[cli]')}"
    ]
    assert format_table(["state"], [["ERROR"]]) == "STATE\nERROR"


def test_a_new_run_reports_its_steps_again(record: Record) -> None:
    watcher = TrialWatcher(record.store, 1)
    record.report(100, loss=1.0)
    record.checkpoint("c", 100)
    record.report(200, loss=2.0)
    assert [news.steps_completed for news in watcher.poll()] == [100, 200]  # type: ignore[union-attr]
    record.store.start_run(1, allocation_id="second")
    assert watcher.poll() == []
    record.report(200, loss=3.0)
    assert [news.metrics for news in watcher.poll()] == [{"loss": 3.0}]  # type: ignore[union-attr]


def test_a_closed_pipe_does_not_stop_the_training(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr("sys.stdout", Closed())
    with experiment_progress.show_progress(TrialWatcher(record.store, 1)) as tick:
        for number in range(3):
            record.log(f"line {number}")
            tick()


@pytest.fixture
def screen() -> io.StringIO:
    return io.StringIO()


def live(record: Record, screen: io.StringIO, *, width: int = 120, status: str = "") -> LiveTrial:
    console = Console(file=screen, force_terminal=True, width=width, color_system=None, legacy_windows=False)
    return LiveTrial(TrialWatcher(record.store, 1), lambda: status, console)


def frames(screen: io.StringIO) -> list[str]:
    """Return the drawn lines, without control sequences."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    return [line.rstrip() for line in re.split(r"[\r\n]+", plain) if line.strip()]


def test_the_live_line_shows_the_progress(record: Record, screen: io.StringIO) -> None:
    seconds = iter(range(100))
    with live(record, screen, width=140) as line:
        line._progress.pace = Pace(clock=lambda: next(seconds))
        line.update()
        assert frames(screen)[-1].endswith("experiment 1 starts, 1000 batches")
        for step in (100, 200, 300):
            record.report(step, loss=0.5)
            line.update()
        record.report(300, "validation", accuracy=0.9, val_loss=1.5)
        record.log("hello \x1b[2J")
        line.update()
    assert frames(screen)[-1].lstrip("━╸╺ ") == (
        "300/1000  loss=0.5  val_accuracy=0.9  val_loss=1.5  best 0.9  00:07 left  100 batches/s"
    )
    assert "[trial 1] [rank=0] hello" in frames(screen)


def test_the_live_line_is_erased_on_a_sanitized_terminal(
    record: Record, screen: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands print through a stream without escape sequences, which left all frames on the screen."""
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("TERM", "xterm")
    with sanitize_streams(), LiveTrial(TrialWatcher(record.store, 1), lambda: "") as line:
        line.update()
        line.update()
        print("above \x1b[2J")
    assert screen.getvalue().count("\x1b[2K") >= 3
    assert "above" in screen.getvalue() and "\x1b[2J" not in screen.getvalue()


def test_the_live_line_shows_where_the_trial_is(record: Record, screen: io.StringIO) -> None:
    with live(record, screen) as line:
        record.store.set_trial_placement(1, 1, "queued (Slurm job 4711; Priority)")
        line.update()
        assert frames(screen)[-1].endswith("queued (Slurm job 4711; Priority)  experiment 1 starts, 1000 batches")
        record.store.set_trial_placement(1, 1, "running on n1 (Slurm job 4711)")
        record.report(100, loss=0.5)
        line.update()
        assert frames(screen)[-1].endswith("loss=0.5  running on n1 (Slurm job 4711)")


def test_a_narrow_live_line_keeps_the_values(record: Record, screen: io.StringIO) -> None:
    """The values were cut off after the rate and the remaining time."""
    seconds = iter(range(100))
    with live(record, screen, width=80) as line:
        line._progress.pace = Pace(clock=lambda: next(seconds))
        for step in (100, 200, 300):
            record.report(step, loss=0.123456, grad_norm=17.25)
            record.report(step, "validation", accuracy=0.987654)
            line.update()
    assert frames(screen)[-1].lstrip("━╸╺ ") == "300/1000  loss=0.1235  val_accuracy=0.9877  best 0.9877  00:07 left"


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_live_line_fits_on_one_line(record: Record, screen: io.StringIO, width: int) -> None:
    metrics = {f"a_rather_long_name_{number}": 0.123456 for number in range(9)}
    record.report(300, **metrics)
    record.report(300, "validation", accuracy=0.9, **metrics)
    with live(record, screen, width=width, status="stopping") as line:
        line.update()
        drawn = screen.getvalue()
    assert "\n" not in drawn
    assert "stopping" in frames(screen)[-1]
    assert max(map(len, frames(screen))) <= width - 4


def test_the_summary_names_the_best_checkpoint(trained: Record) -> None:
    lines = list(summary_lines(summarize_experiment(trained.store, 1)))
    assert lines[0].startswith("Experiment 1 completed: 1 trial, 300 batches, ")
    assert lines[1:] == [
        "  best accuracy=0.75 at batch 200 of trial 1",
        "  best checkpoint best-one (batch 200)",
        f"    in {trained.directory}/storage/best-one",
        "    to get it: det checkpoint download best-one",
    ]


@pytest.mark.parametrize(("text", "is_told"), [("metric: accuracy", True), ("smaller_is_better: true", False)])
def test_the_summary_names_a_missing_direction(store: TrackingStore, text: str, is_told: bool) -> None:
    config = {"searcher": {"metric": "accuracy", "smaller_is_better": True}}
    experiment = store.create_experiment(config=config, original_config=text)
    trial = store.create_trial(experiment.id, hparams={}, seed=1)
    store.start_run(trial.id, allocation_id="a")
    Record(store, experiment, trial, Path()).report(1, "validation", accuracy=0.5)
    lines = list(summary_lines(summarize_experiment(store, experiment.id)))
    assert (f"  note: {missing_direction('accuracy')}" in lines) is is_told


def test_the_summary_of_a_failure_names_the_error(record: Record) -> None:
    record.store.count_restart(1)
    record.end(State.ERROR, "ValueError: batch 7 is cursed")
    text = "\n".join(summary_lines(summarize_experiment(record.store, 1)))
    for words in ("failed", "1 failed run", "batch 7 is cursed", "det experiment logs 1"):
        assert words in text
    assert "resume" not in text  # the same code from the beginning would fail again


def test_a_failure_after_a_checkpoint_can_be_resumed(record: Record) -> None:
    record.checkpoint("c", 100)
    record.end(State.ERROR, "OSError: the disk is full")
    assert "det experiment resume 1" in "\n".join(summary_lines(summarize_experiment(record.store, 1)))


@pytest.mark.skipif(find_spec("det_torch") is None, reason="det-torch is not installed")
def test_the_summary_shows_how_to_load_a_torch_checkpoint(record: Record) -> None:
    record.checkpoint("c", 100, {"state_dict.pth": "torch"}, trial_framework="pytorch")
    text = "\n".join(summary_lines(summarize_experiment(record.store, 1)))
    assert "latest checkpoint c" in text
    assert f'torch.load("{record.directory}/storage/c/state_dict.pth", weights_only=True)' in text


@pytest.mark.parametrize(("smaller_is_better", "best"), [(True, "c100"), (False, "c300")])
def test_the_best_checkpoint_has_the_best_validation(record: Record, smaller_is_better: bool, best: str) -> None:
    config = {**CONFIG, "searcher": {"metric": "loss", "smaller_is_better": smaller_is_better}}
    experiment = record.store.create_experiment(config=config)
    record.trial = record.store.create_trial(experiment.id, hparams={}, seed=1)
    record.store.start_run(record.trial.id, allocation_id="a")
    for step, loss in ((100, 1.0), (200, float("nan")), (300, 3.0), (400, 3.0)):
        record.report(step, "validation", loss=loss)
        record.checkpoint(f"c{step}", step)
    record.report(500, "validation", loss=0.0 if smaller_is_better else 9.0)
    result = summarize_experiment(record.store, experiment.id)
    assert result.checkpoint
    assert result.checkpoint.uuid == best
    assert result.best
    assert result.best.steps_completed == 500


def test_a_total_that_the_config_lacks_is_estimated(record: Record) -> None:
    assert TrialWatcher(record.store, 1).total == 1000
    config = {**CONFIG, "searcher": {"name": "single", "metric": "accuracy", "max_length": {"epochs": 3}}}
    experiment = record.store.create_experiment(config=config)
    record.trial = record.store.create_trial(experiment.id, hparams={}, seed=1)
    record.store.start_run(record.trial.id, allocation_id="a")
    watcher = TrialWatcher(record.store, experiment.id)
    seen = []
    for steps, progress in ((45, 0), (90, 0.05), (90, 0.1), (180, 0.1), (180, 0.2)):
        record.report(steps, loss=0.1)
        record.store.set_trial_progress(record.trial.id, 1, progress)
        watcher.poll()
        seen.append(watcher.total)
    assert seen == [None, None, None, None, 900]


def test_the_total_of_the_trial_is_known_before_its_first_report(record: Record) -> None:
    config = {**CONFIG, "searcher": {"name": "single", "metric": "accuracy", "max_length": {"epochs": 3}}}
    experiment = record.store.create_experiment(config=config)
    trial = record.store.create_trial(experiment.id, hparams={}, seed=1)
    record.store.start_run(trial.id, allocation_id="a")
    record.store.set_trial_total(trial.id, 1, 54)
    watcher = TrialWatcher(record.store, experiment.id)
    watcher.poll()
    assert (watcher.total, record.store.trial(trial.id).total_batches) == (54, 54)


def test_the_total_of_a_resumed_experiment_is_unknown(record: Record) -> None:
    config = {**CONFIG, "searcher": {"name": "single", "metric": "accuracy", "max_length": {"epochs": 3}}}
    experiment = record.store.create_experiment(config=config)
    record.trial = record.store.create_trial(experiment.id, hparams={}, seed=1)
    record.store.start_run(record.trial.id, allocation_id="a")
    record.store.set_trial_progress(record.trial.id, 1, 0.9)
    record.checkpoint("c", 45)
    watcher = TrialWatcher(record.store, experiment.id)
    watcher.poll()
    assert watcher.total is None


def test_the_pace_covers_the_latest_changes() -> None:
    now = 0.0
    pace = Pace(clock=lambda: now)
    seen = []
    for now, steps in ((0, 0), (9, 0), (10, 100), (10.5, 100), (11, 200), (12, 300), (13, 100), (14, 150), (15, 200)):  # noqa: B007
        pace.update(steps)
        seen.append(pace.rate)
    assert seen == [None, None, None, None, 100, 100, None, None, 50]


@pytest.mark.skipif(find_spec("det_torch") is None, reason="det-torch is not installed")
def test_the_summary_shows_how_to_load_a_downloaded_checkpoint(record: Record) -> None:
    """The path in the lines did not exist, such as "type s3, bucket models/state_dict.pth"."""
    storage = {"type": "elsewhere", "bucket": "models"}
    record.store.begin_checkpoint("c", trial_id=1, run_id=record.run_id, storage=storage)
    metadata = {"trial_framework": "pytorch"}
    record.store.complete_checkpoint("c", run_id=record.run_id, steps_completed=5, resources={}, metadata=metadata)
    record.end(State.COMPLETED)
    lines = list(summary_lines(summarize_experiment(record.store, 1)))
    assert "    in type elsewhere, bucket models" in lines
    assert "    to get it: det checkpoint download c" in lines
    assert "  to load it in Python, once it is downloaded:" in lines
    assert 'torch.load("checkpoints/c/state_dict.pth"' in lines[-1]


def test_loading_lines_are_valid_python_for_any_path(tmp_path: Path) -> None:
    framework, path = plugin_registry().specs("framework")[0], str(tmp_path / 'a "quoted" \\ path')
    compile(_how_to_load(framework.name, path), "lines", "exec")
