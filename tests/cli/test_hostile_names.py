"""Untrusted names, metrics and logs control neither the terminal nor a spreadsheet."""

from __future__ import annotations

import csv
import io
import math
import re
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from det_core.cli.render import sanitized_streams
from det_core.cli.render.live_search import LiveSearch
from det_core.cli.render.live_trial import LiveTrial
from det_core.cli.render.search_watcher import SearchWatcher
from det_core.cli.render.trial_watcher import TrialWatcher
from det_core.experimental._progress_display import _format_report
from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking.printable import printable_line, printable_output, printable_text

from .conftest import Det, Record

EVIL = (
    "=cmd|' /C calc'!A0"
    "\x1b]0;title\x07\x1b[2J\x1b[8m\x1b[31mhidden\x1b]8;;http://evil\x1b\\link\x1bP1;2|17/ab\x1b\\\x1bc\x9b31m\x07\x08"
    "[/bold][red] $\\frac$ \u202erevo\u2066 \x85\u2028 row\rover\nExperiment 9: COMPLETED \x1b"
)
MODEL = re.sub(r"[/\\]", "", EVIL).removesuffix(" \x1b")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


@pytest.fixture
def evil(store: TrackingStore, tmp_path: Path) -> Record:
    """Record an experiment in which every name and text is hostile."""
    config = {
        "name": EVIL,
        "description": EVIL,
        "labels": [EVIL, "fine"],
        EVIL: {EVIL: EVIL},
        "searcher": {"name": "single", "metric": EVIL, "max_length": {"batches": 10}},
    }
    experiment = store.create_experiment(config=config, original_config=f"name: {EVIL}", owner=EVIL)
    store.edit_experiment(experiment.id, notes=EVIL)
    for lr in (1, EVIL):
        trial = store.create_trial(experiment.id, hparams={EVIL: lr, "nested": {EVIL: [EVIL]}}, seed=7)
        store.start_run(trial.id, allocation_id=EVIL)
    record = Record(store, experiment, trial, tmp_path)
    record.report(3, **{EVIL: 0.5, "note": EVIL, "deep": {EVIL: EVIL}})
    record.report(3, "validation", **{EVIL: 0.5, "note": EVIL})
    record.report(3, EVIL, **{EVIL: 0.5})
    record.log(EVIL)
    record.checkpoint("one", 3, {"=file [red]\x1b[2J\n": "x"}, **{EVIL: EVIL})
    model = store.create_model(MODEL, description=EVIL, metadata={EVIL: EVIL}, labels=[EVIL], notes=EVIL)
    store.add_model_version(model.name, "one", version_name=EVIL, comment=EVIL, notes=EVIL, owner=EVIL)
    record.end(State.ERROR, error=EVIL)
    return record


COMMANDS = (
    "experiment list",
    "experiment describe 1",
    "experiment describe 1 --metrics",
    "experiment describe 1 --metrics --csv",
    "experiment describe 7",
    "experiment config 1",
    "experiment config 1 --original",
    "experiment label list 1",
    "experiment list --csv",
    "experiment list --json",
    "experiment trials 1",
    "experiment trials 1 --csv",
    "experiment checkpoints 1 --best",
    "experiment checkpoints 1 --csv",
    "experiment wait 1",
    "experiment logs 1",
    "trial describe 2 --metrics",
    "trial describe 2 --metrics --csv",
    "trial logs 2",
    "checkpoint describe one",
    "checkpoint list",
    "model list",
    f"model describe\0{MODEL}",
    f"model list-versions\0{MODEL}",
    f"model describe\0{EVIL}",
    f"experiment list --label\0{EVIL}",
    f"experiment set name 1\0{EVIL}",
    f"experiment label add 1\0{EVIL} more",
    f"\0{EVIL}",
    "completion words -- checkpoint describe o",
)


@pytest.mark.integration
@pytest.mark.parametrize("terminal", [False, True])
def test_no_command_prints_control_characters(
    det: Det, evil: Record, terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if terminal:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    for command in COMMANDS:
        words, _, name = command.partition("\0")
        result = det(*words.split(), *([name] if name else ()))
        printed = result.out + result.err
        assert printed, command
        assert not _OBEYED.findall(_COLOUR.sub("", printed)), command


def test_rows_of_a_table_stay_on_one_line(det: Det, evil: Record) -> None:
    lines = det("experiment", "list").out.splitlines()
    assert len(lines) == 2
    assert "Experiment 9: COMPLETED" in lines[1]


def test_no_cell_is_a_formula(det: Det, evil: Record) -> None:
    for command in COMMANDS:
        if command.endswith("--csv"):
            cells = [cell for row in csv.reader(io.StringIO(det(*command.split()).out)) for cell in row]
            assert any(cell.startswith("'=") for cell in cells) or "checkpoints" in command
            assert not [cell for cell in cells if re.match(r"[=+@\t\r\n-]", cell)], command


def test_numbers_in_cells_stay_numbers(det: Det, record: Record) -> None:
    values = [-1.5, math.inf, -math.inf, math.nan, "-3", "+1e9"]
    for step, value in enumerate(values):
        record.report(step, loss=value)
    rows = csv.DictReader(io.StringIO(det("trial", "describe", "1", "--metrics", "--csv").out))
    assert [repr(float(row["value"])) for row in rows] == [repr(float(value)) for value in values]


@pytest.mark.parametrize("kind", ["line", "search"])
def test_the_live_area_prints_no_control_characters(evil: Record, kind: str) -> None:
    evil.store.set_experiment_state(1, State.ACTIVE)
    evil.store.set_trial_state(2, State.ACTIVE)
    drawn = io.StringIO()
    console = Console(file=drawn, force_terminal=True, width=400, color_system=None, legacy_windows=False)
    if kind == "line":
        with LiveTrial(TrialWatcher(evil.store, 1), lambda: "", console) as line:
            line.update()
    else:
        with LiveSearch(SearchWatcher(evil.store, 1), lambda: "", console) as area:
            area.update()
    moves = re.compile(r"\x1b\[(\?25[lh]|[0-9]*A|2K)|\r")  # cursor control by rich
    assert "cmd|" in drawn.getvalue()
    assert not _OBEYED.findall(moves.sub("", drawn.getvalue()))


def test_notebook_output_has_no_control_characters(evil: Record) -> None:
    (report,) = evil.store.metrics(2, group="validation")
    assert not _OBEYED.findall(_format_report(report))
    assert _format_report(replace(report, metrics={"loss": 10**400})).endswith("0")


@pytest.mark.integration
@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_a_plot_with_hostile_names_can_be_drawn(det: Det, store: TrackingStore, tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    bad = "\x1b[31m$\\frac$ \x01]]>"
    experiment = store.create_experiment(config={"name": bad, "searcher": {"name": "single", "metric": bad}})
    trial = store.create_trial(experiment.id, hparams={bad: bad}, seed=7)
    store.start_run(trial.id, allocation_id="first")
    Record(store, experiment, trial, tmp_path).report(3, "validation", **{bad: 0.5})
    result = det("experiment", "plot", 1, "-o", tmp_path / f"curves{suffix}")
    assert result.code == 0, result.err
    if suffix == ".svg":
        ElementTree.parse(tmp_path / "curves.svg")


def test_harmless_text_is_unchanged() -> None:
    assert printable_text("naïve 名前 👩‍🔬 a\tb") == "naïve 名前 👩‍🔬 a\tb"
    assert printable_output("a\n\x1b[1;31mb\x1b[0m\tc\x1b[2J\r\n") == "a\n\x1b[1;31mb\x1b[0m\tc\n"
    assert printable_line("10%\r\x1b[K100%\x1b[0m\r\n\x1b[0m") == "100%"
    assert printable_text(printable_text("\x1b\x1b[2J[2J")) == printable_text("\x1b\x1b[2J[2J") == "[2J"


def test_halves_of_surrogate_pairs_are_removed_because_no_terminal_can_show_them() -> None:
    """A worker can register a model with such a label, which everybody lists."""
    for clean in (printable_text, printable_output):
        assert clean("a\ud800b\udfffc").encode() == b"abc"


def test_drawing_code_can_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    with sanitized_streams.sanitize_streams():
        print("\x1b[2Ja")
        print("\x1b[Kb", file=sanitized_streams.unwrap_stream(sys.stdout))
        Console(force_terminal=True).control()
        assert sys.stdout.isatty() is False
    assert capsys.readouterr().out == "a\n\x1b[Kb\n"
