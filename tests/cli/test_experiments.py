"""The ``det experiment`` and ``det trial`` commands that find, compare, edit, plot and delete."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
import threading
from datetime import datetime, timezone
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import yaml
from det_testing.requirements import skip_or_fail_in_ci

from det_core.experimental import Determined
from det_core.interfaces.records import CodeVersion, LogLine, MetricsReport, State
from det_core.interfaces.tracking import TrackingStore
from det_core.launch.context_archive import pack_context_dir
from det_core.text import format_slot_hours, to_json_compatible
from det_core.tracking._lease import Lease

from .conftest import CONFIG, Det, Record
from .test_checkpoint import Terminal


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture
def three(trained: Record) -> Record:
    """Add two trials and two experiments.

    Trial 2 has no validation, and the best accuracy of trial 3 is 0.9. Experiment 2 has labels. Experiment 3 is
    archived.
    """
    store = trained.store
    for lr, accuracies in ((0.2, {}), (0.3, {100: 0.9, 200: 0.6})):
        trial = store.create_trial(1, hparams={"lr": lr, "nested": {"depth": 2}}, seed=0)
        store.start_run(trial.id, allocation_id="a")
        trained.trial = trial
        for step, accuracy in accuracies.items():
            trained.report(step, "validation", accuracy=accuracy)
    store.create_experiment(config={**CONFIG, "name": "labelled", "labels": ["old, one", "b"]})
    store.create_experiment(config={**CONFIG, "name": "gone"})
    store.edit_experiment(3, archived=True)
    return trained


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", [2, 1]),
        ("--all", [3, 2, 1]),
        ("--state completed", [1]),
        ("--state COMPLETED --state QUEUED --limit 1", [2]),
        ("--name DIG", [1]),
        ("--label b", [2]),
        ("--label old", []),
        ("--sort-by name", [1, 2]),
        ("--sort-by name --reverse", [2, 1]),
        ("--where lr<0.2", [1]),
        ("--sort-by nested.depth", [1, 2]),
    ],
)
def test_list_filters_and_sorts(det: Det, three: Record, options: str, expected: list[int]) -> None:
    assert [one["id"] for one in det("experiment", "list", "--json", *options.split()).json] == expected


def test_list_prints_csv(det: Det, three: Record) -> None:
    first, _ = rows(det("e", "list", "--csv").out)
    assert (first["id"], first["name"], first["labels"]) == ("2", "labelled", '["old, one", "b"]')
    result = det("e", "list", "--csv", "--json")
    assert (result.code, "--json and --csv exclude each other" in result.out) == (2, True)


def test_a_filter_without_matches_says_so(det: Det, three: Record) -> None:
    assert det("e", "list", "--name", "nonsense").out == "No matching experiments.\n"
    result = det("e", "list", "--state", "broken")
    assert (result.code, "COMPLETED" in result.err) == (2, True)


def test_trials_are_listed_with_their_metrics(det: Det, three: Record) -> None:
    header, *lines = det("experiment", "trials", 1, "--sort-by", "best").out.splitlines()
    assert header.split()[:3] == ["TRIAL", "STATE", "BATCHES"]
    assert "BEST ACCURACY" in header
    assert [line.split() for line in lines] == [
        ["3", "QUEUED", "200", "0.9", "100", "0.6", "lr=0.3"],
        ["1", "COMPLETED", "300", "0.75", "200", "0.7", "lr=0.1"],
        ["2", "QUEUED", "0", "-", "-", "-", "lr=0.2"],
    ]
    listed = det("trial", "list", 1, "--sort-by", "latest", "--limit", 2, "--json").json
    assert [one["id"] for one in listed] == [1, 3]
    assert listed[1]["best"] == {"value": 0.9, "steps_completed": 100}
    as_csv = rows(det("e", "list-trials", 1, "--reverse", "--csv", "--state", "QUEUED").out)
    assert [(one["id"], one["best.value"], one["hparams.nested.depth"]) for one in as_csv] == [
        ("3", "0.9", "2"),
        ("2", "", "2"),
    ]
    assert "best" not in as_csv[0]
    assert det("trial", "list", 1, "--state", "ERROR").out == "No trials.\n"
    assert "no experiment 9" in det("trial", "list", 9).err
    three.report(300, "validation", accuracy=float("nan"))
    for command in ("trials", "describe"):
        assert "NaN since 300" in det("experiment", command, 1).out
    assert re.search(
        r"\ncost +[<0-9. ]+ slot-hours, without 3 runs of unknown slots\n", det("experiment", "describe", 1).out
    )
    assert det("experiment", "describe", 1, "--json").json["uncounted_runs"] == 3


def test_slot_hours_have_three_digits() -> None:
    shown = {0.0: "0", 1e-5: "< 0.001", 0.0091: "0.00910", 4.0: "4.00", 41.26: "41.3", 99.96: "100", 41234.6: "41235"}
    assert {hours: format_slot_hours(hours) for hours in shown} == shown


def test_trials_are_filtered_and_sorted_by_any_value(det: Det, three: Record) -> None:
    found = det(
        "experiment", "trials", 1, "--where", "not lr < 0.2 and nested.depth = 2", "--sort-by", "lr", "-r", "--json"
    )
    assert [one["id"] for one in found.json] == [3, 2]
    result = det("trial", "list", 1, "--where", "lr << 1")
    assert (result.code, "position 5" in result.err) == (1, True)
    for command in ("experiment list", "trial list 1"):
        result = det(*command.split(), "--sort-by", "acuracy")
        assert (result.code, "did you mean 'accuracy'?" in result.err) == (1, True)


def test_an_experiment_is_moved_to_a_project(det: Det, three: Record) -> None:
    assert det("experiment", "set", "project", 2, "vision").code == 0
    assert [one["id"] for one in det("experiment", "list", "--where", "project = vision", "--json").json] == [2]


def test_checkpoints_are_listed_best_first(det: Det, three: Record) -> None:
    three.checkpoint("better", 100)
    best = det("checkpoint", "list", 1, "--best", "--json").json
    assert [(one["uuid"], one["searcher_metric"]) for one in best] == [
        ("better", 0.9),
        ("best-one", 0.75),
        ("last-one", 0.7),
    ]
    header, first = det("experiment", "list-checkpoints", 1, "--best", "--limit", 1).out.splitlines()
    assert (header.split()[-1], first.split()[0], first.split()[-1]) == ("ACCURACY", "better", "0.9")
    of_trial = det("checkpoint", "list", "--trial", 1, "--best", "--csv").out
    assert [one["uuid"] for one in rows(of_trial)] == ["best-one", "last-one"]
    assert [one["uuid"] for one in det("checkpoint", "list", "--trial", 1, "--limit", 1, "--json").json] == ["last-one"]
    result = det("checkpoint", "list", "--best")
    assert (result.code, "--trial" in result.err) == (2, True)


def test_metrics_are_printed_as_csv(det: Det, three: Record) -> None:
    three.report(300, "validation", accuracy=float("nan"), confusion=[[1, 2]], note="a,b")
    found = rows(det("experiment", "describe", 1, "--metrics", "--group", "validation", "--after", 200, "--csv").out)
    assert [(one["trial_id"], one["steps_completed"], one["metric"], one["value"]) for one in found] == [
        ("1", "300", "accuracy", "0.7"),
        ("3", "300", "accuracy", "NaN"),
        ("3", "300", "confusion", "[[1, 2]]"),
        ("3", "300", "note", "a,b"),
    ]
    assert len(rows(det("trial", "describe", 1, "--metrics", "--csv").out)) == 6
    result = det("trial", "describe", 1, "--csv")
    assert (result.code, "--metrics" in result.err) == (2, True)


def test_config_prints_the_complete_or_original_config(det: Det, trained: Record) -> None:
    assert yaml.safe_load(det("experiment", "config", 1).out) == trained.experiment.config
    assert det("experiment", "config", 1, "--original").out == "name: digits\n"


def test_a_trial_has_its_commit_its_machine_and_its_packages(det: Det, trained: Record) -> None:
    assert re.search(r"\nhost +n1\nCPUs +8\npackages +1\n", det("trial", "describe", 1).out)
    (machine,) = det("trial", "describe", 1, "--json").json["machines"]["1"]
    assert (machine["host"], machine["packages"]) == ("n1", {})
    assert det("trial", "describe", 1, "--json").json["packages"] == {"torch": "2.11.0"}
    version = CodeVersion(commit="a" * 40, branch="main\x1b[1m", is_changed=True)
    experiment = trained.store.create_experiment(config={}, code_version=version).id
    trial = trained.store.create_trial(experiment, hparams={}, seed=1).id
    out = det("trial", "describe", trial).out
    assert re.search(rf"\ncommit +{version.commit}\nbranch +main[^\x1b]*\nchanged since +yes\n", out)
    assert det("trial", "describe", trial, "--json").json["code_version"]["commit"] == version.commit
    assert det("trial", "describe", 1, "--json").json["code_version"] is None
    assert f"\n\n{out[out.index('commit') : out.index('yes') + 3]}\n\n" in det("experiment", "describe", experiment).out
    assert det("experiment", "describe", experiment, "--json").json["code_version"]["is_changed"] is True
    assert "commit" not in det("experiment", "describe", 1).out
    assert Determined().get_experiment(experiment).code_version == version


def test_labels_are_added_listed_and_removed(det: Det, trained: Record) -> None:
    assert det("experiment", "label", "add", 1, "b", "a", "b").out == "Experiment 1: labels b, a\n"
    assert det("e", "label", "list", 1).out == "b\na\n"
    assert det("e", "label", "remove", 1, "b", "c", "--json").json["labels"] == ["a"]
    assert det("e", "label", "list", 1, "--json").json == ["a"]
    assert det("e", "label", "remove", 1, "a").out == "Experiment 1: labels none\n"
    assert det("e", "label", "list", 1).out == "", "an empty line would be a label"
    result = det("e", "label")
    assert (result.code, "add labels" in result.err) == (2, True)


def test_set_and_archive_change_an_experiment(det: Det, trained: Record) -> None:
    assert det("experiment", "set", "name", 1, "better").out == "Experiment 1: name 'better'\n"
    det("experiment", "set", "description", 1, "of digits")
    assert det("experiment", "set", "notes", 1, "long", "--json").json["notes"] == "long"
    assert "of digits" in det("experiment", "describe", 1).out
    assert det("experiment", "archive", 1).code == 0
    assert det("experiment", "list", "--json").json == []
    assert det("experiment", "unarchive", 1).code == 0
    assert [one["name"] for one in det("experiment", "list", "--json").json] == ["better"]
    assert det("experiment", "archive", 7).code == 1


def test_download_model_def_copies_the_code(
    det: Det, trained: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "model_def.py").write_text("x = 1\n")
    trained.store.create_experiment(config=CONFIG, model_definition=pack_context_dir(tmp_path / "code"))
    assert det("experiment", "download-model-def", 2).code == 0
    assert (tmp_path / "experiment_2_model_def" / "model_def.py").read_text() == "x = 1\n"
    result = det("experiment", "download-model-def", 2)
    assert (result.code, "not an empty directory" in result.err) == (1, True)
    assert det("e", "download-model-def", 2, "there", "--json").json["path"] == str(tmp_path / "there")
    assert "without its code" in det("e", "download-model-def", 1, "elsewhere").err


def test_delete_removes_files_and_records(det: Det, three: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    store, storage = three.store, three.directory / "storage"
    files = storage / store.cluster_id / "tensorboard" / "experiment"
    for number in (1, 2):
        (files / str(number)).mkdir(parents=True)
        (files / str(number) / "events").write_text("e")
    config = {**CONFIG, "checkpoint_storage": {"type": "directory", "container_path": str(storage)}}
    other = store.create_experiment(config=config).id
    assert (det("experiment", "delete", 1).code, det("experiment", "delete", 1, "--json").code) == (2, 2)
    monkeypatch.setattr("sys.stdin", Terminal("no\n"))
    result = det("experiment", "delete", 1)
    assert (result.code, "(digits, COMPLETED) with 3 trials and 2 checkpoints" in result.out) == (1, True)
    assert det("experiment", "delete", 1, "--yes").out == "Deleted experiment 1 with 2 checkpoints\n"
    assert sorted(path.name for path in storage.iterdir()) == [store.cluster_id]
    assert "no experiment 1" in det("experiment", "describe", 1).err
    (files / str(other)).mkdir()
    (files / str(other) / "events").write_text("e")
    assert det("experiment", "delete", other, "--yes", "--json").json == {"id": other, "checkpoints": []}
    assert [path.name for path in files.iterdir()] == ["2"]


def test_several_experiments_are_deleted_if_all_can_be(
    det: Det, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [record.store.create_experiment(config=CONFIG).id for _ in range(2)]
    record.store.acquire_lease(1, "somebody", seconds=60)
    assert det("experiment", "delete", *others, 1, "--yes").code == 1
    monkeypatch.setattr("sys.stdin", Terminal("yes\nno\n"))
    assert det("experiment", "delete", *others).code == 1
    assert len(record.store.experiments()) == 3
    assert [one["id"] for one in det("experiment", "delete", *others, others[0], "--yes", "--json").json] == others
    assert [one.id for one in record.store.experiments()] == [1]


def test_an_experiment_without_a_runner_shows_how_to_continue(det: Det, record: Record) -> None:
    record.store.set_experiment_state(1, State.ACTIVE)
    record.store.acquire_lease(1, "host:1:1:x", seconds=60)
    assert "no runner" not in det("experiment", "list").out
    assert det("experiment", "list", "--json").json[0]["runner"] == "host:1:1:x"
    assert det("experiment", "describe", 1, "--json").json["runner"] == "host:1:1:x"
    record.store.release_lease(1, "host:1:1:x")
    out = det("experiment", "list").out
    assert "ACTIVE (no runner)" in out
    assert "det experiment resume 1" in out
    assert det("experiment", "list", "--json").json[0]["runner"] is None
    assert det("experiment", "describe", 1, "--json").json["runner"] is None
    assert "det experiment resume 1" in det("experiment", "describe", 1).out
    record.store.set_experiment_state(1, State.PAUSED)
    assert "no runner" not in det("experiment", "list").out  # a paused experiment needs none


def test_a_runner_that_died_here_is_not_shown(det: Det, record: Record) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    place = Lease(record.store, record.store.create_experiment(config=CONFIG).id).holder.split(":")[0]
    record.store.acquire_lease(1, f"{place}:{ended.pid}:1:x", seconds=60)
    assert "ACTIVE (no runner)" in det("experiment", "list", "--state", "ACTIVE").out
    assert "none; to continue: det experiment resume 1" in det("experiment", "describe", 1).out
    assert det("experiment", "wait", 1, "--timeout", 30).out == "Experiment 1: ACTIVE\n"


def test_a_running_experiment_is_not_deleted(det: Det, record: Record) -> None:
    record.store.acquire_lease(1, "somebody", seconds=60)
    result = det("experiment", "delete", 1, "--yes")
    assert (result.code, "det experiment kill 1" in result.err) == (1, True)
    record.store.release_lease(1, "somebody")
    assert det("experiment", "delete", 1, "--yes").code == 0


def test_an_experiment_of_a_dead_script_can_be_deleted(det: Det, record: Record) -> None:
    script = record.store.create_experiment(config=CONFIG, unmanaged=True).id
    trial = record.store.create_trial(script, hparams={}, seed=0).id
    record.store.set_experiment_state(script, State.ACTIVE)
    record.store.set_trial_state(trial, State.ACTIVE)
    record.store.acquire_lease(script, "somebody", seconds=60)
    assert f"det experiment kill {script}" in det("experiment", "delete", script, "--yes").err
    record.store.release_lease(script, "somebody")
    assert det("experiment", "delete", script, "--yes").code == 0


def test_an_experiment_with_a_registered_checkpoint_is_not_deleted(det: Det, trained: Record) -> None:
    trained.store.create_model("digits")
    trained.store.add_model_version("digits", "best-one")
    result = det("experiment", "delete", 1, "--yes")
    assert (result.code, "best-one" in result.err, "det model" in result.err) == (1, True, True)
    assert (trained.directory / "storage" / "best-one" / "weights").exists()


def test_only_a_running_trial_can_be_killed(det: Det, record: Record) -> None:
    result = det("trial", "kill", 1)
    assert (result.code, "nothing is running trial 1" in result.err) == (1, True)
    record.store.acquire_lease(1, "somebody", seconds=60)
    assert det("trial", "kill", 1, "--json").json["state"] == "STOPPING_KILLED"
    record.store.set_trial_state(1, State.CANCELED)
    assert "already CANCELED" in det("trial", "kill", 1).err


def test_trial_download_copies_the_best_or_latest_checkpoint(det: Det, trained: Record, tmp_path: Path) -> None:
    assert det("trial", "download", 1, "-o", tmp_path / "a", "--json").json["uuid"] == "best-one"
    assert det("trial", "download", 1, "--latest", "-o", tmp_path / "b", "--json").json["uuid"] == "last-one"
    assert (tmp_path / "b" / "weights").exists()
    assert det("trial", "download", 1, "--latest", "--best").code == 2
    trained.trial = trained.store.create_trial(1, hparams={}, seed=0)
    trained.store.start_run(2, allocation_id="a")
    assert "no completed checkpoint" in det("trial", "download", 2).err
    trained.checkpoint("never", 5)
    assert "--latest" in det("trial", "download", 2).err


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--head 2", "det 0a"),
        ("--tail 2", "0b 1b"),
        ("--rank 1", "1a 1b"),
        ("--rank-id 0 --rank 1 --tail 3", "1a 0b 1b"),
        ("--stdtype det", "det"),
        ("--stdtype stderr --rank 0", "0b"),
        ("--timestamp-after 2026-01-01T00:00:02Z", "0b 1b"),
        ("--timestamp-before 2026-01-01T00:00:01+00:00", "det"),
    ],
)
def test_options_select_log_lines(det: Det, record: Record, options: str, expected: str) -> None:
    lines: list[tuple[str, str, int]] = [
        ("det", "det", 0),
        ("0a", "stdout", 0),
        ("1a", "stdout", 1),
        ("0b", "stderr", 0),
        ("1b", "stderr", 1),
    ]
    record.store.add_logs(
        [
            LogLine(
                trial_id=1,
                run_id=1,
                rank=rank,
                stdtype=stdtype,
                log=text,
                time=datetime(2026, 1, 1, 0, 0, number, tzinfo=timezone.utc),
            )
            for number, (text, stdtype, rank) in enumerate(lines)
        ]
    )
    found = det("trial", "logs", 1, "--json", *options.split()).json
    assert [one["log"] for one in found] == expected.split()


def test_impossible_log_options_are_rejected(det: Det, record: Record) -> None:
    assert det("trial", "logs", 1, "-f", "--tail", 3).code == 2
    assert "2026-05-17" in det("trial", "logs", 1, "--timestamp-after", "yesterday").err
    assert det("experiment", "logs", 1, "--tail", -1).code == 2


def test_a_table_on_a_terminal_is_folded(det: Det, three: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    three.store.create_trial(1, hparams={f"parameter_{number}": 0.5 for number in range(12)}, seed=0)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    assert det("experiment", "trials", 1).code == 0
    lines = terminal.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    last_column = lines[0].index("HYPER")
    assert "parameter_11=0.5" in "".join(line[last_column:] for line in lines)


def test_names_that_look_like_markup_are_printed_unchanged(
    store: TrackingStore, monkeypatch: pytest.MonkeyPatch, det: Det
) -> None:
    """On a terminal, a metric such as ``loss[/val]`` ended the command with a MarkupError."""
    store.create_experiment(config={**CONFIG, "searcher": {**CONFIG["searcher"], "metric": "loss[/val]"}})
    store.create_trial(1, hparams={"path": "[/data]"}, seed=0)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    assert det("experiment", "trials", 1).code == 0
    header, row = terminal.getvalue().splitlines()
    assert "LOSS[/VAL]" in header
    assert row.endswith("path=[/data]")


@pytest.fixture
def matplotlib() -> None:
    if find_spec("matplotlib") is None:
        skip_or_fail_in_ci("matplotlib is not installed: pip install 'det-core[plot]'")


@pytest.mark.integration
@pytest.mark.usefixtures("matplotlib")
def test_a_plot_shows_names_unchanged(det: Det, three: Record, tmp_path: Path) -> None:
    """A hyperparameter with two dollar signs was parsed as a formula and raised a ParseException."""
    three.trial = three.store.create_trial(1, hparams={"path": r"$DATA/\nothing_$1"}, seed=0)
    three.store.start_run(three.trial.id, allocation_id="a")
    three.report(100, "validation", accuracy=0.5)
    assert det("experiment", "plot", 1, "-o", tmp_path / "curves.svg").err == ""


@pytest.mark.integration
@pytest.mark.usefixtures("matplotlib")
def test_huge_values_and_long_names_are_plotted(det: Det, three: Record, tmp_path: Path) -> None:
    """Huge values raised an error. With long names, the legend left no room for the curves, which is a warning."""
    three.trial = three.store.create_trial(1, hparams={"path": "/data" * 100}, seed=0)
    three.store.start_run(three.trial.id, allocation_id="a")
    for step, accuracy in ((100, 1.0), (200, 1e299), (300, -1.7e308)):
        three.report(step, "validation", accuracy=accuracy)
    assert det("experiment", "plot", 1, "-o", tmp_path / "curves.png").err == ""


@pytest.mark.integration
@pytest.mark.parametrize(("suffix", "options"), [("png", ()), ("svg", ("--log", "--metric", "accuracy"))])
@pytest.mark.usefixtures("matplotlib")
def test_plot_writes_a_picture(det: Det, three: Record, tmp_path: Path, suffix: str, options: tuple[str, ...]) -> None:
    target = tmp_path / f"curves.{suffix}"
    result = det("experiment", "plot", 1, "-o", target, *options)
    assert (result.code, result.out) == (0, f"The curves of 2 trials are in {target}\n")
    content = target.read_bytes()
    assert content.startswith(b"\x89PNG" if suffix == "png" else b"<?xml")
    assert len(content) > 10_000


@pytest.mark.integration
@pytest.mark.usefixtures("matplotlib")
def test_a_plot_of_many_trials_names_the_best_ten(
    det: Det, store: TrackingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best ten trials have named lines. All others are one grey artist, and short curves have markers."""
    from matplotlib.figure import Figure

    figures: list[Figure] = []
    save = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda figure, *args, **kw: (figures.append(figure), save(figure, *args, **kw))
    )
    store.create_experiment(config=CONFIG)
    for number in range(60):
        trial = store.create_trial(1, hparams={"lr": number}, seed=0).id
        store.start_run(trial, allocation_id="a")
        steps = range(1, 2 if number > 50 else 1701 if number in (0, 20) else 4)
        store.report_metrics(
            [
                MetricsReport(
                    trial_id=trial,
                    run_id=1,
                    group="validation",
                    steps_completed=step,
                    metrics={"accuracy": 1 - number / 60},
                )
                for step in steps
            ]
        )
    assert det("experiment", "plot", 1, "-o", tmp_path / "curves.png").out.startswith("The curves of 60 trials")
    ((axes,), (others,)) = figures[0].axes, figures[0].axes[0].collections
    grey = others.get_segments()
    assert [len(curve) for curve in grey] == [3] * 10 + [568] + [3] * 30 + [1] * 9
    marks, *best = axes.get_lines()
    assert len(marks.get_xdata()) == 129
    assert [len(line.get_xdata()) for line in best] == [851] + [3] * 9
    assert {line.get_markersize() for line in best} == {3}
    legend = [words.get_text() for words in figures[0].legends[0].get_texts()]
    assert len(legend) == 11
    assert legend[-1] == "the others"
    assert axes.get_ylim()[0] < 1 / 60  # the worst is in the picture
    grid = [*axes.get_xgridlines(), *axes.get_ygridlines()]
    assert grid and all(line.get_visible() for line in grid)  # so that values can be read


@pytest.mark.usefixtures("matplotlib")
def test_a_single_point_is_a_large_dot(
    det: Det, record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure

    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **kw: figures.append(figure))
    record.report(100, "validation", accuracy=0.5)
    assert det("experiment", "plot", 1, "-o", tmp_path / "curves.png").code == 0
    (point,) = figures[0].axes[0].get_lines()
    assert (len(point.get_xdata()), point.get_marker(), point.get_markersize()) == (1, "o", 7)


def test_impossible_plots_are_rejected(det: Det, three: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ".svg" in det("experiment", "plot", 1, "-o", "curves.gif").err
    if find_spec("matplotlib"):
        assert "no metrics" in det("experiment", "plot", 2).err
        assert "no metric nonsense" in det("experiment", "plot", 1, "--metric", "nonsense").err
        three.report(400, "validation", shift=-1.0)
        assert "positive values" in det("experiment", "plot", 1, "--metric", "shift", "--log").err
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = det("experiment", "plot", 1)
    assert (result.code, "pip install 'det-core[plot]'" in result.err) == (1, True)


def test_a_listing_needs_a_constant_number_of_queries(det: Det, store: TrackingStore) -> None:
    """The runner of each unfinished experiment was read in a separate transaction."""
    queries: list[str] = []
    own = threading.get_ident()  # tests before may have left a lease, which a thread renews

    def note(*args: Any) -> None:
        if threading.get_ident() == own:
            queries.append(args[2])

    listener = ("before_cursor_execute", note)
    counts = []
    sa.event.listen(sa.Engine, *listener)
    try:
        for number in (1, 20):
            for _ in range(number):
                store.create_experiment(config=CONFIG)
            queries.clear()
            assert "digits" in det("experiment", "list").out
            counts.append(len(queries))
    finally:
        sa.event.remove(sa.Engine, *listener)
    assert counts[0] == counts[1]


def test_listings_are_streamed() -> None:
    """Each element is encoded before the next one is read."""
    asked: list[int] = []

    def numbers() -> Any:
        for number in range(3):
            asked.append(number)
            yield number

    pieces = json.JSONEncoder(indent=2).iterencode(to_json_compatible({"a": numbers(), "b": iter(())}))
    seen = [(piece.strip(" ,\n"), len(asked)) for piece in pieces]
    assert ("0", 1) in [(text[-1:], count) for text, count in seen]
    assert json.loads(json.dumps(to_json_compatible({"a": [0, 1, 2]}))) == {"a": [0, 1, 2]}
    assert asked == [0, 1, 2]
