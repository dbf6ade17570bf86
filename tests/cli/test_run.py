"""Training with ``det run`` and ``det experiment create``, on the toy framework of tests/toy."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pytest

from det_core.cli.commands.run import _status, announce_config_file, read_config, train_in_foreground
from det_core.cli.render.experiment_summary import ExperimentSummary, summary_lines
from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.launch.machine_slots import reserve_slots
from det_core.plugins import plugin_registry
from det_core.tracking import open_store

from ..waiting import wait_for
from .conftest import Det

CONFIG = """
name: toy
entrypoint: model_def:T
searcher: {name: single, metric: validation_loss, max_length: {batches: 50}}
scheduling_unit: 10
max_restarts: 0
resources: {shm_size: 1}
"""


@pytest.fixture
def code(toy_site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory with a config and a trial, and install the toy framework."""
    monkeypatch.setenv("PYTHONPATH", str(toy_site))
    monkeypatch.syspath_prepend(toy_site)
    plugin_registry.cache_clear()
    directory = tmp_path / "code"
    directory.mkdir()
    (directory / "const.yaml").write_text(CONFIG)
    write_trial(directory, "pass")
    return directory


def write_trial(directory: Path, on_batch: str) -> None:
    (directory / "model_def.py").write_text(
        "import os\nimport time\nfrom det_toy import ToyTrial\nclass T(ToyTrial):\n"
        f"    def on_batch(self, batch):\n        {on_batch}\n"
    )


def command(*argv: object) -> list[str]:
    return [sys.executable, "-m", "det_core.cli", *map(str, argv)]


@pytest.mark.integration
def test_run_trains_and_names_the_checkpoint(det: Det, code: Path) -> None:
    (code / "startup-hook.sh").write_text("exit 1")
    result = det("run", code / "const.yaml")
    assert result.code == 0, result.err
    assert "trial 1: batch 50/50 training loss=" in result.out
    assert "Experiment 1 completed: 1 trial, 50 batches" in result.out
    assert "resources.shm_size" in result.err
    assert result.err.count("startup-hook.sh is not run; run its commands") == 1
    assert "\x1b" not in result.out
    uuid = result.out.partition("det checkpoint download ")[2].split()[0]
    assert det("c", "download", uuid, "-o", code.parent / "out").code == 0
    assert (code.parent / "out" / "toy.json").is_file()


SEARCH = """
searcher: {name: random, metric: validation_loss, max_length: {batches: 20}, max_trials: 2, max_concurrent_trials: 2}
hyperparameters: {lr: {type: double, minval: 0, maxval: 1}}
launcher: {type: local, slots: 2}
"""


@pytest.mark.integration
def test_a_search_is_drawn_live(code: Path) -> None:
    write_trial(code, "time.sleep(0.05)")
    (code / "const.yaml").write_text(CONFIG.replace("searcher:", "# searcher:") + SEARCH)
    status, drawn = on_a_terminal("run", code / "const.yaml")
    assert status == 0
    assert "2 running" in drawn
    assert "hyperparameters" in drawn
    assert re.search(r"trial \d: completed after 20 batches, best validation_loss=", drawn)
    summary = drawn.rpartition("Experiment 1 completed: 2 trials, 40 batches")[2]
    assert re.search(r"TRIAL.*VALIDATION_LOSS.*HYPERPARAMETERS", summary)


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


@pytest.mark.integration
def test_run_reports_the_error_of_a_trial(det: Det, code: Path) -> None:
    write_trial(code, "if batch == 7: raise ValueError('batch 7 is cursed')")
    result = det("run", code / "const.yaml", code, "--json")
    assert (result.code, result.json["id"], result.json["state"]) == (1, 1, "ERROR")
    assert result.json["error"].startswith("ValueError: batch 7 is cursed (batch 7, model_def.py:")


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


@pytest.mark.integration
def test_a_closed_terminal_pauses_the_experiment(code: Path) -> None:
    write_trial(code, "time.sleep(0.1)")
    ours, theirs = pty.openpty()
    argv = ["setsid", "--ctty", *command("run", code / "const.yaml")]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        drawn = ""
        while not (re.search("[1-4]0/50", drawn) and "batches/s" in drawn):
            new = _read(ours).decode(errors="replace")
            assert new, drawn
            drawn += new
        assert "\x1b[2K" in drawn  # erases a line to draw it again
        os.close(ours)
        process.send_signal(signal.SIGHUP)  # an ending shell sends SIGHUP after the kernel did
        assert process.wait(100) == 129
    with open_store() as store:
        (trial,) = store.trials(1)
        assert (store.experiment(1).state, store.experiment(1).error, trial.restarts) == (State.PAUSED, None, 0)
        assert store.checkpoints(trial_id=trial.id)[-1].steps_completed == trial.steps_completed > 0


@pytest.mark.integration
def test_a_signal_pauses_and_resume_continues(det: Det, code: Path) -> None:
    stopped = code.parent / "stopped"
    write_trial(code, f"time.sleep(0 if batch < 10 or os.path.exists({str(stopped)!r}) else 0.1)")
    with subprocess.Popen(command("run", code / "const.yaml"), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            if "batch 10/50" in line:
                process.send_signal(signal.SIGINT)
        assert process.wait(100) == 130
    stopped.touch()
    resumed = det("experiment", "resume", 1, "--follow")
    assert resumed.code == 0, resumed.err
    assert "Resumed experiment 1" in resumed.out
    assert "batch 10/50" not in resumed.out
    assert "batch 50/50" in resumed.out


def test_the_status_says_what_signals_lead_to() -> None:
    assert _status([]) == ""
    stopping = "saving a checkpoint to stop; Ctrl-C kills"
    for signals in ([signal.SIGINT], [signal.SIGHUP], [signal.SIGHUP, signal.SIGHUP], [signal.SIGHUP, signal.SIGTERM]):
        assert _status(signals) == stopping
    assert _status([signal.SIGINT, signal.SIGTERM]) == "killing"


def test_notices_are_printed_and_changes_are_recorded(code: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, changes = code / "const.yaml", ["name=other", "max_restarts=3"]
    config = read_config(path, changes)
    assert (config.name, config.max_restarts) == ("other", 3)
    notices = capsys.readouterr()
    assert notices.out == ""
    assert notices.err.startswith(f"det: note: {path}: ") and "resources.shm_size" in notices.err
    text = announce_config_file(config, path, code, changes)
    assert text == f"# --config name=other\n# --config max_restarts=3\n{CONFIG}"
    assert "startup-hook.sh" not in capsys.readouterr().err
    (code / "startup-hook.sh").touch()
    assert announce_config_file(config, path, code) == CONFIG
    assert f"{code / 'startup-hook.sh'} is not run" in capsys.readouterr().err


class Stopped:
    """Runner that stops in a state after signals."""

    def __init__(self, state: State, *signals: signal.Signals) -> None:
        self.state, self.signals = state, signals

    def run(self, tick: Callable[[], None]) -> State:
        tick()
        return self.state


@pytest.mark.parametrize(
    ("runner", "code"),
    [
        (Stopped(State.PAUSED, signal.SIGINT), 130),
        (Stopped(State.PAUSED, signal.SIGTERM), 143),
        (Stopped(State.PAUSED, signal.SIGHUP), 129),
        (Stopped(State.CANCELED, signal.SIGTERM, signal.SIGINT), 143),
        (Stopped(State.PAUSED), 1),
        (Stopped(State.COMPLETED, signal.SIGINT), 0),
        (Stopped(State.ERROR, signal.SIGINT), 1),
    ],
)
def test_the_exit_code_is_that_of_the_first_signal(
    store: TrackingStore, monkeypatch: pytest.MonkeyPatch, runner: Stopped, code: int
) -> None:
    monkeypatch.setattr("det_core.runner.ExperimentRunner", lambda *arguments: runner)
    assert train_in_foreground(store, 1, quiet=True) == code


def test_only_a_hangup_redirects_the_output(store: TrackingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a hangup the terminal is closed, and each write to it would be an error."""
    ours, theirs = pty.openpty()
    os.close(ours)
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        monkeypatch.setattr(sys, "stderr", terminal)

        def write_after(signal: signal.Signals) -> None:
            runner = Stopped(State.PAUSED, signal)
            monkeypatch.setattr("det_core.runner.ExperimentRunner", lambda *arguments: runner)
            train_in_foreground(store, 1, quiet=True)
            os.write(theirs, b"Experiment 1 paused")

        with pytest.raises(OSError, match="Input/output error"):
            write_after(signal.SIGINT)
        write_after(signal.SIGHUP)


@pytest.mark.integration
def test_create_trains_in_the_background(det: Det, code: Path) -> None:
    assert det("experiment", "create", code / "const.yaml", code).out == "Created experiment 1\n"
    assert det("experiment", "wait", 1, "--timeout", 100).code == 0
    assert det("experiment", "describe", 1, "--json").json["state"] == "COMPLETED"


@pytest.mark.integration
def test_detaching_leaves_the_experiment_running(det: Det, code: Path, store: TrackingStore) -> None:
    write_trial(code, "time.sleep(0.1)")
    argv = command("e", "create", code / "const.yaml", code, "-f")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        while "starts from" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        assert process.wait(100) == 130
        assert "experiment 1 continues" in process.stdout.read()
    assert store.lease_holder(1)
    assert det("experiment", "kill", 1).code == 0
    wait_for(lambda: not store.lease_holder(1))
    assert det("experiment", "wait", 1).code == 1


@pytest.mark.integration
def test_a_test_of_one_batch_leaves_nothing_behind(
    det: Det, code: Path, det_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, scratch = tmp_path / "storage", tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    with (code / "const.yaml").open("a") as file:
        file.write(f"checkpoint_storage: {{type: directory, container_path: {storage}}}\n")
    result = det("experiment", "create", code / "const.yaml", code, "--test")
    assert result.code == 0, result.err
    assert result.out.splitlines()[-1].startswith("To train it: det run")
    assert not det_home.exists()
    assert [path for path in storage.rglob("*") if path.is_file()] == []
    assert list(scratch.iterdir()) == []

    taken = reserve_slots(["cpu-0"], 1, priority=1, submitted=datetime.now(timezone.utc))
    assert taken.poll() == [0]
    test = command("experiment", "create", code / "const.yaml", code, "--test", "--json")
    found = json.loads(subprocess.run(test, capture_output=True, check=True, timeout=120).stdout)
    taken.close()
    assert found["training"].keys() == {"loss"}
    assert "toy.json" in found["checkpoint"]


@pytest.mark.integration
def test_a_test_of_one_batch_reports_errors(det: Det, code: Path) -> None:
    write_trial(code, "raise ValueError('not even one')")
    result = det("experiment", "create", code / "const.yaml", code, "--test")
    assert result.code == 1
    assert "The test failed: ValueError: not even one" in result.out
