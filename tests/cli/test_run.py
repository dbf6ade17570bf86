"""Training with ``det run`` and ``det experiment create``, on the toy framework of tests/toy."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from det_core.cli.render.experiment_summary import ExperimentSummary, summary_lines
from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.testing._plugin_metadata import write_plugin_metadata
from det_core.tracking import open_store

pytestmark = pytest.mark.integration

CONFIG = """
name: toy
entrypoint: model_def:T
searcher: {name: single, metric: validation_loss, max_length: {batches: 50}}
scheduling_unit: 10
max_restarts: 0
resources: {shm_size: 1}
"""


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory with a config and a trial, and install the toy framework for child processes."""
    site = tmp_path / "site"
    write_plugin_metadata(site, "det-toy")
    shutil.copy(Path(__file__).parent.parent / "toy" / "det_toy.py", site)
    monkeypatch.setenv("PYTHONPATH", str(site))
    directory = tmp_path / "code"
    directory.mkdir()
    (directory / "const.yaml").write_text(CONFIG)
    write_trial(directory, "pass")
    return directory


def write_trial(directory: Path, on_batch: str) -> None:
    (directory / "model_def.py").write_text(
        "import time\nfrom det_toy import ToyTrial\nclass T(ToyTrial):\n"
        f"    def on_batch(self, batch):\n        {on_batch}\n"
    )


def det(*argv: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*argv), capture_output=True, text=True, timeout=60)


def command(*argv: object) -> list[str]:
    return [sys.executable, "-m", "det_core.cli", *map(str, argv)]


def test_run_trains_and_names_the_checkpoint(code: Path) -> None:
    result = det("run", code / "const.yaml")
    assert result.returncode == 0, result.stderr
    assert "trial 1: batch 50/50 training loss=" in result.stdout
    assert "Experiment 1 completed: 1 trial, 50 batches" in result.stdout
    assert "resources.shm_size" in result.stderr
    assert "\x1b" not in result.stdout
    uuid = result.stdout.partition("det checkpoint download ")[2].split()[0]
    assert det("c", "download", uuid, "-o", code.parent / "out").returncode == 0
    assert (code.parent / "out" / "toy.json").is_file()


def test_a_startup_hook_is_mentioned_once(code: Path) -> None:
    (code / "startup-hook.sh").write_text("exit 1")
    result = det("run", code / "const.yaml")
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("startup-hook.sh is not run; run its commands") == 1


def test_run_draws_a_live_line_on_a_terminal(code: Path) -> None:
    write_trial(code, "time.sleep(0.05)")
    status, drawn = on_a_terminal("run", code / "const.yaml")
    assert status == 0
    assert "\x1b[2K" in drawn  # erases a line to draw it again
    assert "batches/s" in drawn
    assert "Experiment 1 completed" in drawn


SEARCH = """
searcher: {name: random, metric: validation_loss, max_length: {batches: 20}, max_trials: 3, max_concurrent_trials: 3}
hyperparameters: {lr: {type: double, minval: 0, maxval: 1}}
launcher: {type: local, slots: 2}
"""


def test_a_search_is_drawn_live_or_printed_as_lines(code: Path) -> None:
    write_trial(code, "time.sleep(0.05)")
    (code / "const.yaml").write_text(CONFIG.replace("searcher:", "# searcher:") + SEARCH)
    status, drawn = on_a_terminal("run", code / "const.yaml")
    assert status == 0
    assert "2 running" in drawn
    assert "hyperparameters" in drawn
    assert re.search(r"trial \d: completed after 20 batches, best validation_loss=", drawn)
    summary = drawn.rpartition("Experiment 1 completed: 3 trials, 60 batches")[2]
    assert re.search(r"TRIAL.*VALIDATION_LOSS.*HYPERPARAMETERS", summary)

    result = det("run", code / "const.yaml")
    assert result.returncode == 0, result.stderr
    events, _, summary = result.stdout.partition("Experiment 2 completed: 3 trials")
    assert re.fullmatch(r"Created experiment 2\n(trial \d: (batch 20 validation|completed after 20).*\n){6}", events)
    assert len(re.findall(r"^    \d .* lr=", summary, re.MULTILINE)) == 3


def on_a_terminal(*argv: object) -> tuple[int, str]:
    """Run a command on a terminal and return its exit code and output."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(command(*argv), stdout=theirs, env=environment) as process:
        os.close(theirs)
        drawn = b"".join(iter(lambda: _read(ours), b"")).decode()
    os.close(ours)
    return process.returncode, drawn


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # raised by Linux once all writers have closed the terminal
        return b""


def test_run_prints_json(code: Path) -> None:
    result = det("run", code / "const.yaml", code, "--json")
    assert result.returncode == 0, result.stderr
    outcome = json.loads(result.stdout)
    assert (outcome["id"], outcome["state"], outcome["steps_completed"]) == (1, "COMPLETED", 50)
    assert Path(outcome["path"], "toy.json").is_file()


def test_run_reports_the_error_of_a_trial(code: Path) -> None:
    write_trial(code, "if batch == 7: raise ValueError('batch 7 is cursed')")
    result = det("run", code / "const.yaml")
    assert result.returncode == 1
    assert "error: ValueError: batch 7 is cursed" in result.stdout


def test_the_summary_of_a_trial_that_could_not_start_says_what_to_do() -> None:
    result = ExperimentSummary(
        id=1,
        state=State.PAUSED,
        error="processes of an earlier run are still alive",
        trials=1,
        steps_completed=0,
        restarts=0,
        interruptions=0,
        seconds=1.0,
        best=None,
        top=(),
        checkpoint=None,
        checkpoint_value=None,
        path=None,
    )
    assert [*summary_lines(result)][1:] == [
        "  error: processes of an earlier run are still alive",
        "  to continue: det experiment resume 1",
    ]


def test_a_closed_terminal_pauses_the_experiment(code: Path) -> None:
    write_trial(code, "time.sleep(0.03)")
    ours, theirs = pty.openpty()
    argv = ["setsid", "--ctty", *command("run", code / "const.yaml")]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        drawn = ""
        while "10/50" not in drawn:
            drawn += _read(ours).decode(errors="replace")
        os.close(ours)
        process.send_signal(signal.SIGHUP)  # an ending shell sends SIGHUP after the kernel did
        assert process.wait(60) == 129
    with open_store() as store:
        (trial,) = store.trials(1)
        assert (store.experiment(1).state, store.experiment(1).error, trial.restarts) == (State.PAUSED, None, 0)
        assert store.checkpoints(trial_id=trial.id)[-1].steps_completed == trial.steps_completed > 0


@pytest.mark.parametrize(("number", "code_"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_pauses_and_resume_continues(code: Path, number: signal.Signals, code_: int) -> None:
    write_trial(code, "time.sleep(0.03)")
    with subprocess.Popen(command("run", code / "const.yaml"), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            if "batch 10/50" in line:
                process.send_signal(number)
        assert process.wait(30) == code_
    resumed = det("experiment", "resume", 1, "--follow")
    assert resumed.returncode == 0, resumed.stderr
    assert "Resumed experiment 1" in resumed.stdout
    assert "batch 10/50" not in resumed.stdout
    assert "batch 50/50" in resumed.stdout


def test_create_trains_in_the_background(code: Path) -> None:
    created = det("experiment", "create", code / "const.yaml", code)
    assert (created.returncode, created.stdout) == (0, "Created experiment 1\n")
    assert det("experiment", "wait", 1, "--timeout", 30).returncode == 0
    created = det("e", "create", code / "const.yaml", code, "--follow", "--json")
    assert json.loads(created.stdout)["state"] == "COMPLETED"


def test_detaching_leaves_the_experiment_running(code: Path, det_home: Path) -> None:
    write_trial(code, "time.sleep(0.1)")
    argv = command("e", "create", code / "const.yaml", code, "-f")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        while "starts from" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert "experiment 1 continues" in process.stdout.read()
    with open_store() as store:
        assert store.lease_holder(1)
        assert det("experiment", "kill", 1).returncode == 0
        _until_free(store)
    assert det("experiment", "wait", 1).returncode == 1


def _until_free(store: TrackingStore) -> None:
    deadline = time.monotonic() + 30
    while store.lease_holder(1):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_test_of_one_batch_leaves_nothing_behind(
    code: Path, det_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, scratch = tmp_path / "storage", tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    with (code / "const.yaml").open("a") as file:
        file.write(f"checkpoint_storage: {{type: directory, container_path: {storage}}}\n")
    result = det("experiment", "create", code / "const.yaml", code, "--test")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1].startswith("To train it: det run")
    assert not det_home.exists()
    assert [path for path in storage.rglob("*") if path.is_file()] == []
    assert list(scratch.iterdir()) == []

    found = json.loads(det("experiment", "create", code / "const.yaml", code, "--test", "--json").stdout)
    assert found["training"].keys() == {"loss"}
    assert "toy.json" in found["checkpoint"]


def test_a_test_of_one_batch_reports_errors(code: Path) -> None:
    write_trial(code, "raise ValueError('not even one')")
    result = det("experiment", "create", code / "const.yaml", code, "--test")
    assert result.returncode == 1
    assert "The test failed: ValueError: not even one" in result.stdout
