"""`core.init` without a runner, on the embedded tracking store."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from det_core import core, get_cluster_info
from det_core.cli import main
from det_core.errors import MetricsConflict, TrackingError
from det_core.home import home_directory
from det_core.interfaces.records import CheckpointState, State
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store


@pytest.fixture
def store(det_home: Path) -> Any:
    with open_store() as store:
        yield store


def the_experiment(store: TrackingStore) -> Any:
    (experiment,) = store.experiments()
    return experiment


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_process_of_the_launcher_without_a_trial_is_a_script(
    store: TrackingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = {"master_url": "sqlite:///x", "cluster_id": "c", "agent_id": "a", "slot_ids": [], "task_id": "t"}
    cluster |= {"allocation_id": "allocated", "session_token": "", "latest_checkpoint": None}
    (tmp_path / "cluster.json").write_text(json.dumps(cluster))
    monkeypatch.setenv("DET_INFO_DIR", str(tmp_path))
    with core.init():
        info = get_cluster_info()
        assert info and info.trial is None
        assert the_experiment(store).unmanaged


def test_the_reports_of_a_script_are_recorded(store: TrackingStore) -> None:
    with core.init() as context:
        context.train.report_training_metrics(10, {"loss": 0.5}, batch_metrics=[{"loss": 0.6}, {"loss": 0.4}])
        context.train.report_validation_metrics(10, {"validation_loss": 0.3, "worst": float("inf")})
        context.train.report_metrics("throughput", 10, {"rate": 100})
        context.train.set_status("training")
        context.train.report_progress(0.5)
        context.train.flush()
        running = the_experiment(store)
        assert (running.progress, running.state) == (0.5, State.ACTIVE)
        assert [trial.state for trial in store.trials(running.id)] == [State.ACTIVE]
        assert context.train.get_experiment_best_validation() == 0.3
    experiment = the_experiment(store)
    (trial,) = store.trials(experiment.id)
    assert (experiment.state, trial.state, experiment.unmanaged) == (State.COMPLETED, State.COMPLETED, True)
    assert (trial.runner_state, experiment.progress, trial.steps_completed) == ("training", 1.0, 10)
    assert {m.group: dict(m.metrics) for m in store.metrics(trial.id)} == {
        "training": {"loss": 0.5},
        "validation": {"validation_loss": 0.3, "worst": float("inf")},
        "throughput": {"rate": 100},
    }


@pytest.mark.parametrize(
    ("error", "state", "reason"),
    [
        (None, State.COMPLETED, ""),
        (RuntimeError("boom"), State.ERROR, "RuntimeError: boom"),
        (KeyboardInterrupt(), State.CANCELED, "its trial ended as CANCELED"),
    ],
)
def test_the_final_state_shows_how_the_block_ended(
    store: TrackingStore, error: BaseException | None, state: State, reason: str
) -> None:
    def body() -> None:
        with core.init() as context:
            context.train.report_training_metrics(1, {"loss": 1.0})
            if error:
                raise error

    if error:
        with pytest.raises(type(error)):
            body()
    else:
        body()
    experiment = the_experiment(store)
    assert (experiment.state, experiment.error) == (state, reason if state is State.ERROR else None)
    [trial] = store.trials(experiment.id)
    assert [run.end_reason for run in store.runs(trial.id)] == [reason]
    assert len(list(store.metrics(trial.id))) == 1


def test_an_error_of_the_background_writer_is_raised_by_flush(store: TrackingStore) -> None:
    with core.init() as context:
        context.train.report_training_metrics(1, {"loss": 1.0})
        context.train.report_training_metrics(1, {"loss": 2.0})
        with pytest.raises(MetricsConflict, match="loss"):
            context.train.flush()
        context.train.report_training_metrics(2, {"loss": 3.0})


def test_reporting_outside_the_block_raises_an_error() -> None:
    context = core.init()
    with pytest.raises(RuntimeError, match=r"with core.init\(\)"):
        context.train.report_training_metrics(1, {"loss": 1.0})
    with context:
        pass


@pytest.mark.parametrize("group", ["", "a.b"])
def test_an_invalid_group_is_rejected_at_once(group: str) -> None:
    with core.init() as context, pytest.raises(ValueError, match="must not be empty or contain"):
        context.train.report_metrics(group, 1, {})


def test_sigterm_requests_to_stop_and_is_acknowledged(store: TrackingStore) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with core.init() as context:
        assert not context.preempt.should_preempt()
        os.kill(os.getpid(), signal.SIGTERM)
        assert context.preempt.should_preempt(auto_ack=False)
        run = store.run(context.trial.trial_id, context.trial.trial_run_id)
        assert not run.preemption_acknowledged
        assert context.preempt.should_preempt()
        run = store.run(context.trial.trial_id, context.trial.trial_run_id)
        assert run.preemption_acknowledged
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_second_ctrl_c_interrupts() -> None:
    with pytest.raises(KeyboardInterrupt), core.init():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)


def test_checkpoints_are_stored_restored_and_recorded(store: TrackingStore, tmp_path: Path) -> None:
    with core.init(checkpoint_storage=tmp_path / "ckpt") as context:
        with context.checkpoint.store_path({"steps_completed": 4}) as (path, storage_id):
            (path / "weights").write_text("w")
        row = store.checkpoint(storage_id)
        assert (row.state, row.steps_completed, row.resources["weights"]) == (CheckpointState.COMPLETED, 4, 1)
        with context.checkpoint.restore_path(storage_id) as path:
            assert (path / "weights").read_text() == "w"
        assert context.checkpoint.get_metadata(storage_id) == {"steps_completed": 4}
        context.checkpoint.delete(storage_id)
        assert store.checkpoint(storage_id).state is CheckpointState.DELETED
        context.checkpoint.delete(storage_id)


def test_checkpoints_in_another_storage_are_deleted_there(store: TrackingStore, tmp_path: Path) -> None:
    with core.init(checkpoint_storage=tmp_path / "one") as context:
        with context.checkpoint.store_path({"steps_completed": 1}) as (_, storage_id):
            pass
        store.edit_checkpoint_metadata(storage_id, add={"note": "edited"})
        assert context.checkpoint.get_metadata(storage_id) == {"steps_completed": 1, "note": "edited"}
    with core.init(checkpoint_storage=tmp_path / "two") as context:
        context.checkpoint.delete(storage_id)
    assert not (tmp_path / "one" / storage_id).exists()
    assert store.checkpoint(storage_id).state is CheckpointState.DELETED


@pytest.mark.parametrize(
    ("policy", "error", "kept"),
    [
        ({"save_trial_best": 1}, None, [1, 4]),
        ({}, None, [1, 2, 3, 4]),
        ({"save_trial_best": 0, "save_trial_latest": 2}, None, [3, 4]),
        ({"save_trial_best": 1}, RuntimeError("boom"), [1, 2, 3, 4]),
    ],
)
def test_a_script_keeps_the_checkpoints_that_an_experiment_would_keep(
    store: TrackingStore, tmp_path: Path, policy: dict[str, int], error: Exception | None, kept: list[int]
) -> None:
    storage = {"type": "directory", "container_path": str(tmp_path / "checkpoints"), **policy}
    with suppress(RuntimeError), core.init(config={"checkpoint_storage": storage}) as context:
        for step in range(1, 5):
            context.train.report_validation_metrics(step, {"validation_loss": step})
            with context.checkpoint.store_path({"steps_completed": step}):
                pass
        if error:
            raise error
    left = store.checkpoints(trial_id=context.trial.trial_id)
    assert [one.steps_completed for one in left] == kept
    assert {path.parent.name for path in tmp_path.rglob("metadata.json")} == {one.uuid for one in left}
    assert main(["checkpoint", "gc", str(context.trial.experiment_id)]) == 0
    assert len(store.checkpoints(trial_id=context.trial.trial_id)) == 2


def test_upload_does_not_change_the_directory(store: TrackingStore, tmp_path: Path) -> None:
    source = tmp_path / "mine"
    source.mkdir()
    (source / "keep").write_text("1")
    (source / "drop").write_text("2")
    with core.init(checkpoint_storage={"type": "directory", "container_path": str(tmp_path / "c")}) as context:
        storage_id = context.checkpoint.upload(source, {"note": "x"}, selector=lambda path: path != "drop")
        context.checkpoint.download(storage_id, tmp_path / "back")
    assert names(source) == ["drop", "keep"]
    assert names(tmp_path / "back") == ["keep", "metadata.json"]


def test_an_unknown_storage_scheme_is_rejected_before_anything_is_recorded(store: TrackingStore) -> None:
    with pytest.raises(ValueError, match="expected a directory"):
        core.init(checkpoint_storage="ftp://host/path")
    assert store.experiments() == []


def test_metrics_that_cannot_be_written_make_the_script_fail(store: TrackingStore) -> None:
    with pytest.raises(MetricsConflict), core.init() as context:
        context.train.report_training_metrics(1, {"loss": 1.0})
        context.train.report_training_metrics(1, {"loss": 2.0})
    assert the_experiment(store).state is State.ERROR


def test_alerts_go_to_the_log(det_home: Path, caplog: pytest.LogCaptureFixture) -> None:
    with core.init() as context, caplog.at_level("INFO", "det.core"):
        caplog.clear()
        context.alert("loss is high", "above 3", "warn")
        context.alert(title="end of main")
        with pytest.raises(ValueError, match="alert\\(level='loud'\\): expected one of debug, info, warn, error"):
            context.alert("x", level="loud")
        logged = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert logged == [("WARNING", "alert: loss is high: above 3"), ("INFO", "alert: end of main")]


def test_a_home_on_a_network_file_system_is_replaced_by_a_local_store_with_one_warning(
    det_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mounts = f"1 0 0:1 / / rw - ext4 /dev/x rw\n2 1 0:2 / {det_home} rw - nfs4 host:/x rw\n"
    monkeypatch.setattr("det_core.tracking._sqlite._mounts", lambda: mounts)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with core.init() as context:
        context.train.report_training_metrics(1, {"loss": 1.0})
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "nfs4" in caplog.text
    local = tmp_path / f"det-{os.getuid()}" / "det.db"
    assert local.stat().st_mode & 0o077 == 0
    with open_store(f"sqlite:///{local}") as store:
        assert len(list(store.metrics(1))) == 1


def test_get_cluster_info_returns_none_outside_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("det_core.core._cluster_info.DEFAULT_INFO_DIR", tmp_path)
    assert get_cluster_info() is None


def test_a_user_without_a_name_is_recorded_by_id(det_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In `docker --user 1234`, neither the user database nor the environment contains a name."""

    def nobody(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr("pwd.getpwuid", nobody)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    with core.init():
        pass
    with open_store() as store:
        assert store.experiment(1).owner == str(os.getuid())
    for name in ("DET_HOME", "HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(TrackingError, match="Set DET_HOME to a directory that you can write to"):
        home_directory()


def test_a_script_without_a_config_is_recorded_with_all_defaults(store: TrackingStore) -> None:
    with core.init() as without, core.init(config={"searcher": {"name": "single"}}) as parsed:
        seeds = {"reproducibility": without.trial.config["reproducibility"]}
        assert json.dumps(without.trial.config) == json.dumps({**parsed.trial.config, **seeds})
        assert without.config.dump() == without.trial.config
        assert without.searcher.get_configured_units() is core.Unit.EPOCHS
        assert next(without.searcher.operations()).length == 1
