"""Output of scripts that run by themselves: the experiment, the progress and the result, all on stderr."""

from __future__ import annotations

import io
import logging
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from det_core import core
from det_core.core import _script_output
from det_core.core._notebook_panel import NotebookPanel, draw_chart
from det_core.core._progress_line import Pace
from det_core.core._terminal_line import TerminalLine
from det_core.interfaces.records import State
from det_core.metric_directions import missing_direction
from det_core.tracking import open_store

CONFIG = {"name": "digits", "searcher": {"metric": "accuracy", "smaller_is_better": False}}


def train(quiet: bool = False, config: Any = CONFIG, error: Exception | None = None) -> None:
    with core.init(config=config, quiet=quiet) as context:
        for step, accuracy in ((1, 0.5), (2, 0.75), (3, 0.7)):
            context.train.report_training_metrics(step, {"loss": 1 / step})
            context.train.report_validation_metrics(step, {"accuracy": accuracy})
            with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
                (path / "weights").write_text("w")
        if error:
            raise error


def test_a_script_names_its_experiment_and_its_result(det_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train()
    with open_store() as store:
        [best] = (one.uuid for one in store.checkpoints(trial_id=1) if one.steps_completed == 2)
    out, err = capsys.readouterr()
    first, ended, *rest = err.splitlines()
    assert out == ""
    assert first == "det: experiment 1 (digits)"
    assert re.fullmatch(r"det: experiment 1 completed: 3 batches, \d+\.\d s", ended)
    assert rest == [
        "det:   best accuracy=0.75 at batch 2",
        f"det:   best checkpoint {best} (batch 2)",
        f"det:     in {det_home}/checkpoints/{best}",
        "det:   to see more: det experiment describe 1, det experiment plot 1",
    ]


def test_a_failed_script_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError):
        train(error=ZeroDivisionError())
    err = capsys.readouterr().err
    assert "det: experiment 1 failed: 3 batches, " in err
    assert "det:   best checkpoint " in err


def test_a_script_without_the_searcher_metric_is_told_how_to_name_one(capsys: pytest.CaptureFixture[str]) -> None:
    train(config=None)
    err = capsys.readouterr().err
    assert "det:   latest validation accuracy=0.7\n" in err
    assert "best unknown without 'validation_loss'; name a metric in the config:\n" in err
    assert "det:   latest checkpoint " in err


@pytest.mark.parametrize(
    ("metric", "hint"),
    [
        ("accuracy", "'smaller_is_better': False}}\n"),
        ("validation_error", "'smaller_is_better': True}}\n"),
        ("x", "'smaller_is_better': True}}, or False if larger values are better\n"),
    ],
)
def test_the_config_that_is_proposed_has_the_direction_of_the_metric(
    metric: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with core.init() as context:
        context.train.report_validation_metrics(1, {metric: 0.5})
    assert f"det:     {{'searcher': {{'metric': {metric!r}, {hint}" in capsys.readouterr().err


@pytest.mark.parametrize("given", [{}, {"smaller_is_better": True}])
def test_a_script_with_a_missing_direction_is_told_so(
    given: dict[str, bool], capsys: pytest.CaptureFixture[str]
) -> None:
    train(config={"searcher": {"metric": "accuracy", **given}})
    err = capsys.readouterr().err
    assert "best accuracy=0.5 at batch 1\n" in err
    assert (f"det:   note: {missing_direction('accuracy')}\n" in err) is not bool(given)


def test_quiet_scripts_print_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    train(quiet=True)
    monkeypatch.setenv("DET_QUIET", "1")
    train()
    assert capsys.readouterr() == ("", "")


def test_lines_of_progress_are_rare(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_script_output, "_LINE_SECONDS", 0.0)
    monkeypatch.setattr(_script_output._Lines, "interval", 0.0)
    with core.init(config=CONFIG) as context:
        context.train.set_status("epoch 1 of 2")
        context.train.flush()
        context.train.report_validation_metrics(1, {"accuracy": 0.5})
        context.train.flush()
    lines = capsys.readouterr().err.splitlines()
    assert lines[1:3] == ["det: epoch 1 of 2", "det: epoch 1 of 2  1 batch  val_accuracy=0.5  best 0.5"]
    monkeypatch.setattr(_script_output, "_LINE_SECONDS", 3600.0)
    train()
    assert "val_accuracy" not in capsys.readouterr().err


def test_a_closed_stderr_and_a_broken_display_do_not_stop_the_training(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    train()
    monkeypatch.setattr(sys, "stderr", None)
    train()
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(_script_output._Lines, "show", lambda *_: 1 / 0)
    train()
    assert "the progress of the script is no longer shown: ZeroDivisionError" in caplog.text
    with open_store() as store:
        assert [experiment.state for experiment in store.experiments()] == [State.COMPLETED] * 3


SCRIPT = """
from det_core import core
with core.init(config={"searcher": {"metric": "accuracy", "smaller_is_better": False}}) as context:
    for step in range(1, 4):
        context.train.report_validation_metrics(step, {"accuracy": step / 10})
        context.train.report_progress(step / 3)
        context.train.flush()
        print("step", step, flush=True)
"""


@pytest.mark.integration
def test_a_terminal_shows_the_progress_and_stdout_stays_clean(det_home: Path) -> None:
    terminal, inside = pty.openpty()
    try:
        out = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "TERM": "xterm", "PYTHONIOENCODING": "utf-8"},
            stdout=subprocess.PIPE,
            stderr=inside,
            check=True,
            timeout=60,
        )
        os.set_blocking(terminal, False)
        shown = os.read(terminal, 1 << 16).decode()
    finally:
        os.close(inside)
        os.close(terminal)
    assert out.stdout == b"step 1\nstep 2\nstep 3\n"
    assert "\r\x1b[K━━━━━─── 2 batches  67%  val_accuracy=0.2  best 0.2" in shown
    plain = [line.rpartition("\x1b[K")[2] for line in shown.replace("\r\n", "\n").split("\n")]
    assert plain[0] == "det: experiment 1 (-c)"
    assert plain[1].startswith("det: experiment 1 completed: 3 batches, ")


class Screen(io.StringIO):
    """Terminal as a string.

    Attributes:
        shown: what was flushed.
    """

    shown = ""

    def isatty(self) -> bool:
        return True

    def flush(self) -> None:
        self.shown = self.getvalue()


def test_the_last_line_gives_way_to_other_output(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "stderr", screen)
    handler = logging.StreamHandler()  # keeps the stream that it was made with
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    line = TerminalLine(screen)
    line.draw("10%")
    assert screen.shown.endswith("10%")
    print("hello")
    assert screen.shown.endswith("10%\r\x1b[K")
    line.draw("20%")
    logging.getLogger().warning("careful")
    print("name? ", end="")
    line.draw("would break the prompt")
    print("ada")
    line.draw("30%")
    sys.stdout.flush()  # as before the prompt of a debugger
    line.draw("40%")
    line.close()
    print("bye")
    clear = "\r\x1b[K"
    assert screen.getvalue() == (
        f"{clear}10%{clear}hello\n{clear}20%{clear}careful\nname? ada\n{clear}30%{clear}{clear}40%{clear}bye\n"
    )
    assert (sys.stdout, sys.stderr, handler.stream) == (screen, screen, screen)


def test_a_broken_display_gives_the_streams_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(TerminalLine, "draw", lambda *_: 1 / 0)
    with core.init(config=CONFIG) as context:
        assert sys.stdout is not screen
        context.train.report_validation_metrics(1, {"accuracy": 0.5})
        context.train.flush()
        assert (sys.stdout, sys.stderr) == (screen, screen)
    assert "ZeroDivisionError" in caplog.text


def test_charts_show_single_points_and_escape_names() -> None:
    single = draw_chart("<acc>", {"validation": [(100, 0.75)]})
    assert single.count("<circle ") == 1
    assert "&lt;acc&gt;" in single and "<acc>" not in single
    assert "nan" not in draw_chart("huge", {"a": [(0, -1.7e308), (1, 1.7e308)], "b": [(0, 0.0)]})
    assert draw_chart("many", {f"trial {number}": [(1, 1.0)] for number in range(30)}).count("<polyline") == 10


def test_a_panel_keeps_few_points_per_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[str, str] = {}

    class Handle:
        def update(self, data: dict[str, str], raw: bool) -> None:
            drawn.update(data)

    display = pytest.importorskip("IPython.display")
    monkeypatch.setattr(display, "display", lambda *_, **__: Handle())
    panel = NotebookPanel("validation_loss")
    for step in range(5000):
        panel.add({"accuracy": 1.0, "validation_loss": 0.5, "text": "x", "bad": float("nan")}, step, "validation")
    panel.add({"loss": 0.5}, 4999, "training")
    panel.draw("experiment <1>", 0.5, "result")
    assert len(panel._charts["loss"]["validation"]) <= 600
    assert panel._charts["loss"]["validation"][-1][0] == 4999
    html = drawn["text/html"]
    assert html.index(">loss<") < html.index(">accuracy<")
    assert ("bad" in html, "experiment &lt;1&gt;" in html) == (False, True)
    assert drawn["text/plain"] == "experiment <1>\nresult"


def test_a_rate_needs_changes_at_different_times() -> None:
    times = iter([5.0, 5.0, 7.0])
    pace = Pace(clock=lambda: next(times))
    for steps, rate in ((0, None), (10, None), (10, None), (20, None), (30, 10.0)):
        pace.update(steps)
        assert pace.rate == rate
