"""Scripts without a runner that continue their experiment of an earlier run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from det_core import core
from det_core.cli import main
from det_core.core.script_command import describe_start, resume_command
from det_core.errors import DetError, ExperimentBusy, NoCheckpoint, RecordNotFound, StaleRun
from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store

from .workers import Workers

CONFIG = {"searcher": {"metric": "loss"}, "hyperparameters": {"lr": {"type": "double", "minval": 0, "maxval": 1}}}


@pytest.fixture
def store(det_home: Path) -> Iterator[TrackingStore]:
    with open_store() as opened:
        yield opened


def save(context: core.Context, step: int) -> str:
    with context.checkpoint.store_path({"steps_completed": step}) as (path, storage_id):
        (path / "weights").write_text(str(step))
    return storage_id


def interrupted(**options: Any) -> tuple[core.Context, str]:
    """Train three batches with a checkpoint after the second one, and return the context and the checkpoint."""
    with suppress(KeyboardInterrupt), core.init(config=CONFIG, **options) as context:
        for step in range(1, 4):
            context.train.report_training_metrics(step, {"loss": 1 / step})
            if step == 2:
                saved = save(context, step)
        raise KeyboardInterrupt
    return context, saved


@pytest.mark.parametrize("variable", [True, False])
def test_a_script_continues_its_experiment(
    store: TrackingStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], variable: bool
) -> None:
    before, saved = interrupted()
    assert before.latest_checkpoint is None
    capsys.readouterr()
    if variable:
        monkeypatch.setenv("DET_RESUME", "1")
    with core.init(config=CONFIG, resume=7 if variable else 1) as context:
        assert context.latest_checkpoint == saved
        assert (context.trial.trial_run_id, context.trial.steps_completed) == (2, 2)
        same = ("experiment_id", "trial_id", "trial_seed", "hparams")
        assert [getattr(context.trial, name) for name in same] == [getattr(before.trial, name) for name in same]
        assert store.experiment(1).state is State.ACTIVE
        for step in range(3, 5):
            context.train.report_training_metrics(step, {"loss": 2 / step})
        last = save(context, 4)
    assert [(one.steps_completed, one.metrics["loss"]) for one in store.metrics(1)] == [
        (1, 1.0),
        (2, 0.5),
        (3, 2 / 3),
        (4, 0.5),
    ]
    assert [one.uuid for one in store.checkpoints(trial_id=1)] == [saved, last]
    assert store.experiment(1).state is State.COMPLETED
    assert capsys.readouterr().err.splitlines()[0].endswith(", continued after 2 batches")
    if variable:
        with core.init() as context:
            assert context.trial.experiment_id == 2, "the variable counts once"


def test_a_script_without_a_checkpoint_starts_from_the_beginning(
    store: TrackingStore, capsys: pytest.CaptureFixture[str]
) -> None:
    with suppress(RuntimeError), core.init() as context:
        context.train.report_training_metrics(1, {"loss": 1.0})
        raise RuntimeError
    with core.init(resume=1) as context:
        assert (context.latest_checkpoint, context.trial.steps_completed) == (None, 0)
        context.train.report_training_metrics(1, {"loss": 2.0})
    assert [dict(one.metrics) for one in store.metrics(1)] == [{"loss": 2.0}]
    assert ", continued from the beginning\n" in capsys.readouterr().err


def test_the_storage_and_the_retention_are_those_of_the_experiment(store: TrackingStore, tmp_path: Path) -> None:
    _, saved = interrupted(checkpoint_storage={"type": "directory", "container_path": str(tmp_path / "there")})
    storage = {"type": "directory", "container_path": str(tmp_path / "elsewhere"), "save_trial_latest": 1}
    with core.init(checkpoint_storage=storage, resume=1) as context:
        with context.checkpoint.restore_path(saved) as path:
            assert (path / "weights").read_text() == "2"
        last = save(context, 4)
    assert not (tmp_path / "elsewhere").exists()
    assert [one.uuid for one in store.checkpoints(trial_id=1)] == [last]


def test_only_the_length_of_the_config_may_change(store: TrackingStore, caplog: pytest.LogCaptureFixture) -> None:
    config = {"hyperparameters": {"lr": 0.1}, "searcher": {"name": "single", "metric": "loss", "max_length": 1}}
    with core.init(config=config) as context:
        save(context, 1)
        next(context.searcher.operations()).report_completed(0.5)
    with core.init(config={**config, "searcher": {**config["searcher"], "max_length": 2}}, resume=1) as context:
        assert [op.length for op in context.searcher.operations() if op.report_completed(0.4) is None] == [2]
    assert not caplog.records
    with core.init(config={"hyperparameters": {"lr": 0.5}}, resume=1) as context:
        assert context.trial.hparams == {"lr": 0.1}
    [warning] = caplog.messages
    assert warning.startswith("experiment 1 continues with its own hyperparameters, ")


@pytest.mark.parametrize(
    ("resume", "error", "message"),
    [
        ("soon", ValueError, "cannot resume 'soon'; expected the id of an experiment"),
        (0, ValueError, "cannot resume 0"),
        (True, ValueError, "cannot resume True"),
        (9, RecordNotFound, "experiment 9"),
        (1, DetError, "was not recorded by a script; to continue it: det experiment resume 1"),
    ],
)
def test_what_cannot_be_continued_is_refused(
    store: TrackingStore, resume: Any, error: type[Exception], message: str
) -> None:
    store.create_experiment(config={})
    with pytest.raises(error, match=message):
        core.init(resume=resume)


def test_an_experiment_without_its_files_is_refused(store: TrackingStore, det_home: Path) -> None:
    interrupted()
    shutil.rmtree(det_home / "checkpoints")
    with pytest.raises(NoCheckpoint, match="has trained 2 batches, but none of its checkpoints can be restored"):
        core.init(resume=1)
    assert (store.experiment(1).state, store.lease_holder(1)) == (State.CANCELED, None)


def test_a_running_script_is_not_continued_and_a_replaced_one_changes_nothing(store: TrackingStore) -> None:
    with pytest.raises(StaleRun), core.init() as first:
        with pytest.raises(ExperimentBusy, match="stop it with: det experiment pause 1"):
            core.init(resume=1)
        assert first._lease
        store.release_lease(1, first._lease.holder)  # as after 30 s without a renewal
        second = core.init(resume=1)
        with pytest.raises(StaleRun):
            first.train.report_training_metrics(1, {"loss": 1.0})
            first.train.flush()
    assert store.experiment(1).state is State.ACTIVE
    with second:
        pass
    assert store.experiment(1).state is State.COMPLETED


SCRIPT = """
import os, signal, sys
from det_core import core
with core.init() as context:
    step = context.trial.steps_completed
    while step < 4:
        step += 1
        with context.checkpoint.store_path({"steps_completed": step}):
            pass
        if step == 2:
            os.kill(os.getpid(), getattr(signal, sys.argv[1]))
        if context.preempt.should_preempt():
            break
    print(step)
"""


@pytest.mark.integration
@pytest.mark.parametrize("number", ["SIGINT", "SIGKILL"])
def test_the_command_that_is_printed_continues_a_script(
    store: TrackingStore, tmp_path: Path, capsys: pytest.CaptureFixture[str], number: str
) -> None:
    (tmp_path / "my train.py").write_text(SCRIPT)
    ran = subprocess.run(
        [sys.executable, "my train.py", number], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    command = f"DET_RESUME=1 {sys.executable} 'my train.py' {number}"
    if number == "SIGINT":
        assert (ran.returncode, ran.stdout) == (0, "2\n"), ran.stderr
        assert ran.stderr.splitlines()[-1] == f"det:   to continue from the latest checkpoint: {command}"
    else:
        assert ran.returncode == -signal.SIGKILL
        assert main(["experiment", "list"]) == 0
        assert "ACTIVE (no runner)" in capsys.readouterr().out
    assert main(["experiment", "resume", "1"]) == 1
    error = capsys.readouterr().err
    assert error == (
        f"det: error: experiment 1 was recorded by a script, which continues with: cd {tmp_path} && {command}\n"
    )
    again = subprocess.run(error.rpartition("continues with: ")[2], shell=True, capture_output=True, text=True)
    assert (again.returncode, again.stdout) == (0, "4\n"), again.stderr
    assert [one.steps_completed for one in store.checkpoints(trial_id=1)] == [1, 2, 3, 4]


def test_a_session_without_a_script_is_told_what_to_call() -> None:
    assert resume_command(3, {"entrypoint": [""], "internal": {"directory": "/tmp"}}) == "core.init(resume=3)"
    assert resume_command(3, {"entrypoint": "session:Trial"}) == "core.init(resume=3)"


@pytest.mark.integration
def test_all_workers_of_a_script_continue(store: TrackingStore, workers: Workers) -> None:
    body = """
    with core.init(distributed=distributed) as context:
        print(context.latest_checkpoint, context.trial.trial_run_id)
        with context.checkpoint.store_path({"steps_completed": 1}, shard=True) as (path, _):
            (path / str(rank)).touch()
    """
    launcher = ["python", "-m", "det_core.launch", "torch_distributed", "--slots", "2", "--", "train.py"]
    assert set(workers.run(2, body, DET_STARTED_BY=json.dumps(launcher))) == {"None 1\n"}
    [saved] = store.checkpoints(trial_id=1)
    assert set(workers.run(2, body, DET_RESUME="1")) == {f"{saved.uuid} 2\n"}
    assert store.experiment(1).config["entrypoint"] == launcher


def test_the_command_of_workers_is_that_of_their_launcher() -> None:
    parent = Path(f"/proc/{os.getppid()}/cmdline").read_bytes()
    assert describe_start(2)["entrypoint"] == [word.decode() for word in parent.split(b"\0")[:-1]]
    assert describe_start(1)["entrypoint"] == sys.orig_argv
