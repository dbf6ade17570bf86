"""Checkpoints and logs in the tracking store."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest

from det_core.errors import CallTooLarge, RecordNotFound, TrackingError
from det_core.interfaces.records import LARGEST_RECORD, LONGEST_LINE, CheckpointState, LogLine, Run, TrialRecord
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import log_reading
from det_core.tracking.log_reading import LogFilter, log_parts

STORAGE = {"type": "shared_fs", "host_path": "/x"}
DONE = {"steps_completed": 100, "resources": {"a/": 0, "a/w": 2**40}, "metadata": {"steps_completed": 100, "é": [None]}}


def begin(store: TrackingStore, run: Run, uuid: str) -> None:
    store.begin_checkpoint(uuid, trial_id=run.trial_id, run_id=run.run_id, storage=STORAGE)


def test_a_checkpoint_is_begun_completed_and_deleted(store: TrackingStore, run: Run) -> None:
    begin(store, run, "c")
    active = store.checkpoint("c")
    assert (active.state, active.steps_completed, active.resources) == (CheckpointState.ACTIVE, None, {})
    assert active.storage == STORAGE
    assert store.checkpoints(trial_id=run.trial_id) == []
    store.complete_checkpoint("c", run_id=1, **DONE)
    done = store.checkpoint("c")
    assert (done.state, done.metadata, done.resources) == (
        CheckpointState.COMPLETED,
        DONE["metadata"],
        DONE["resources"],
    )
    assert store.checkpoint("c", brief=True) == replace(done, storage={}, resources={}, metadata={})
    assert done.time > active.time
    assert store.checkpoints(trial_id=run.trial_id) == [done]
    assert store.trial(run.trial_id).steps_completed == 100
    store.delete_checkpoint("c")
    gone = store.checkpoint("c")
    assert (gone.state, gone.resources, gone.steps_completed) == (CheckpointState.DELETED, {}, 100)
    assert store.checkpoints(trial_id=run.trial_id) == []


@pytest.mark.parametrize("field", ["storage", "resources", "metadata"])
def test_what_is_recorded_for_a_checkpoint_is_bounded(store: TrackingStore, run: Run, field: str) -> None:
    large = {"x" * LARGEST_RECORD: 1}
    with pytest.raises(CallTooLarge, match=f"expected at most {LARGEST_RECORD}: put data into files"):
        store.begin_checkpoint("c", trial_id=run.trial_id, run_id=1, storage=large if field == "storage" else {})
        store.complete_checkpoint("c", run_id=1, **{**DONE, field: large})


@pytest.mark.parametrize("uuid", ["", ".", "..", "a/b", "../a", "a" * 129, "-a", "a\n"])
def test_the_id_of_a_checkpoint_names_one_directory(store: TrackingStore, run: Run, uuid: str) -> None:
    """Otherwise the deletion of one could delete a part of another one from a bucket."""
    with pytest.raises(ValueError, match="is no id of a checkpoint; expected letters, digits, - and _"):
        begin(store, run, uuid)


def test_the_id_of_the_cluster_is_that_of_no_checkpoint(store: TrackingStore, run: Run) -> None:
    """Otherwise its deletion would remove the TensorBoard files of all experiments."""
    with pytest.raises(ValueError, match="is the id of all TensorBoard files"):
        begin(store, run, store.cluster_id)


def test_no_state_of_a_checkpoint_is_skipped_or_repeated(store: TrackingStore, run: Run) -> None:
    begin(store, run, "c")
    with pytest.raises(TrackingError, match="c already exists"):
        begin(store, run, "c")
    store.complete_checkpoint("c", run_id=1, **DONE)
    with pytest.raises(TrackingError, match="c is COMPLETED, so it cannot be completed"):
        store.complete_checkpoint("c", run_id=1, **DONE)
    store.delete_checkpoint("c")
    with pytest.raises(TrackingError, match="c is DELETED, so it cannot be completed"):
        store.complete_checkpoint("c", run_id=1, **DONE)
    for call in (lambda: store.checkpoint("d"), lambda: store.delete_checkpoint("d")):
        with pytest.raises(RecordNotFound, match="no checkpoint d in"):
            call()


def test_a_damaged_checkpoint_is_neither_latest_nor_best(store: TrackingStore, run: Run) -> None:
    for uuid, steps in (("a", 1), ("b", 2)):
        begin(store, run, uuid)
        store.complete_checkpoint(uuid, run_id=1, **{**DONE, "steps_completed": steps})
    store.fail_checkpoint("b", "w is missing")
    failed = store.checkpoint("b")
    assert (failed.state, failed.error, failed.resources) == (CheckpointState.ERROR, "w is missing", DONE["resources"])
    assert [one.uuid for one in store.checkpoints(trial_id=run.trial_id)] == ["a"]
    experiment = store.trial(run.trial_id).experiment_id
    assert [one.checkpoint.uuid for one in store.scored_checkpoints(experiment)] == ["a"]
    store.start_run(run.trial_id, allocation_id="b")
    assert store.trial(run.trial_id).steps_completed == 1
    store.delete_checkpoint("b")
    store.fail_checkpoint("b", "again")
    assert store.checkpoint("b").state is CheckpointState.DELETED
    with pytest.raises(RecordNotFound, match="no checkpoint d in"):
        store.fail_checkpoint("d", "missing")


def test_the_error_of_a_checkpoint_may_contain_any_text(store: TrackingStore, run: Run) -> None:
    begin(store, run, "c")
    store.complete_checkpoint("c", run_id=1, **DONE)
    store.fail_checkpoint("c", "a\0b \udcff is missing")
    failed = store.checkpoint("c")
    assert (failed.state, failed.error) == (CheckpointState.ERROR, "a\N{REPLACEMENT CHARACTER}b ? is missing")


def test_the_latest_checkpoint_is_the_one_begun_last_whatever_the_clock_says(
    store: TrackingStore, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker's clock that is set back does not make an older checkpoint the latest."""
    times = iter(datetime(2026, 1, 1, hour, tzinfo=timezone.utc) for hour in range(23, 0, -1))
    monkeypatch.setattr("det_core.tracking._checkpoints.utc_now", lambda: next(times))
    for run_id, (uuid, steps) in enumerate((("a", 1), ("b", 2), ("c", 3)), start=1):
        current = Run(trial_id=run.trial_id, run_id=run_id, allocation_id="a")
        begin(store, current, uuid)
        store.complete_checkpoint(uuid, run_id=run_id, **{**DONE, "steps_completed": steps})
        store.start_run(run.trial_id, allocation_id="a")
        assert store.trial(run.trial_id).steps_completed == steps
    assert [one.uuid for one in store.checkpoints(trial_id=run.trial_id)] == ["a", "b", "c"]
    experiment = store.trial(run.trial_id).experiment_id
    assert [one.checkpoint.uuid for one in store.scored_checkpoints(experiment)] == ["a", "b", "c"]


def test_checkpoints_are_listed_in_the_order_in_which_they_began(
    store: TrackingStore, trial: TrialRecord, run: Run
) -> None:
    other = store.start_run(store.create_trial(trial.experiment_id, hparams={}, seed=0).id, allocation_id="a")
    foreign_trial = store.create_trial(store.create_experiment(config={}).id, hparams={}, seed=0)
    foreign = store.start_run(foreign_trial.id, allocation_id="a")
    for uuid, owner in (("a", run), ("b", run), ("c", other), ("d", foreign)):
        begin(store, owner, uuid)
    for uuid in "dba":
        store.complete_checkpoint(uuid, run_id=1, **DONE)

    def listed(**filters: int) -> str:
        return "".join(found.uuid for found in store.checkpoints(states=list(CheckpointState), **filters))

    assert listed() == "abcd"
    assert listed(trial_id=trial.id) == "ab"
    assert listed(experiment_id=trial.experiment_id) == "abc"
    assert listed(experiment_id=trial.experiment_id, trial_id=foreign_trial.id) == ""


def test_a_call_has_a_maximum_number_of_lines(store: TrackingStore, run: Run) -> None:
    """Others wait to write in the meantime."""
    line = LogLine(trial_id=run.trial_id, run_id=1, rank=0, stdtype="det", log="", time=datetime.now(timezone.utc))
    with pytest.raises(CallTooLarge, match="10001 lines; expected at most 10000"):
        store.add_logs([line] * 10_001)
    assert store.logs(run.trial_id) == []


def test_logs_are_followed_by_id(store: TrackingStore, trial: TrialRecord, run: Run) -> None:
    time = datetime(2026, 1, 1, tzinfo=timezone.utc)
    texts = ["plain", "", "a\0b \udc80", "ünï\r\n", "x" * 100_000]
    store.add_logs(
        [LogLine(trial_id=trial.id, run_id=1, rank=3, stdtype="stdout", log=text, time=time) for text in texts]
    )
    store.add_logs([])
    lines = store.logs(trial.id)
    assert [line.log for line in lines] == ["plain", "", "a\N{REPLACEMENT CHARACTER}b ?", "ünï\r\n", "x" * 100_000]
    assert [line.id for line in lines] == sorted({line.id for line in lines})
    assert (lines[0].rank, lines[0].stdtype, lines[0].time, lines[0].run_id) == (3, "stdout", time, 1)
    assert store.logs(trial.id, after=lines[1].id, limit=2) == lines[2:4]
    assert store.logs(trial.id, after=lines[-1].id) == []


@pytest.mark.parametrize(
    ("chosen", "found"),
    [
        ({"ranks": [0]}, "ab"),
        ({"ranks": [1, 2]}, "c"),
        ({"stdtype": "det"}, "d"),
        ({"level": "WARNING"}, "bc"),
        ({"search": "LOSS is 100%"}, "b"),
        ({"search": "%"}, "b"),
        ({"earliest": datetime(2026, 1, 1, 0, 1, tzinfo=timezone.utc)}, "cd"),
        ({"latest": datetime(2026, 1, 1, 0, 1, tzinfo=timezone.utc)}, "a"),
        ({"ranks": [0, 1], "level": "ERROR", "search": "boom"}, "c"),
    ],
)
def test_logs_are_filtered(
    store: TrackingStore,
    trial: TrialRecord,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    chosen: dict[str, Any],
    found: str,
) -> None:
    lines = {
        "a": (0, "stdout", "INFO", "loss is 100"),
        "b": (0, "stderr", "WARNING", "Loss is 100% of all"),
        "c": (1, "stderr", "ERROR", "boom"),
        "d": (0, "det", "INFO", "run 1 starts"),
    }
    for minute, (rank, stdtype, level, log) in enumerate(lines.values()):
        time = datetime(2026, 1, 1, 0, minute, tzinfo=timezone.utc)
        values: dict[str, Any] = {"rank": rank, "stdtype": stdtype, "level": level, "log": log, "time": time}
        store.add_logs([LogLine(trial_id=trial.id, run_id=1, **values)])
    names = {values[3]: name for name, values in lines.items()}
    assert "".join(names[line.log] for line in store.logs(trial.id, **chosen)) == found
    for window in (1, 2, 100):
        monkeypatch.setattr(log_reading, "_WINDOW", window)
        for newest in (False, True):
            parts = list(log_parts(store, trial.id, LogFilter(**chosen), newest=newest, at_once=1))
            read = "".join(names[line.log] for part in parts for line in part.lines)
            assert read == (found[::-1] if newest else found)


def test_parts_of_logs_leave_out_the_lines_of_others_and_have_an_edge(
    store: TrackingStore, trial: TrialRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reading, "_WINDOW", 10)
    time = datetime.now(timezone.utc)
    other = store.create_trial(trial.experiment_id, hparams={}, seed=1)
    for owner in (trial, other, other, other, trial):
        line = LogLine(trial_id=owner.id, run_id=1, rank=0, stdtype="stdout", log="line", time=time)
        store.add_logs([line] * 50)
    ids = [line.id for line in store.logs(trial.id)]
    upwards = list(log_parts(store, trial.id, LogFilter(search="other"), at_once=5))
    assert len(upwards) == 10
    assert upwards[-1].edge == ids[-1]
    downwards = list(log_parts(store, trial.id, LogFilter(search="other"), newest=True, at_once=5))
    assert downwards[-1].edge <= ids[0]
    assert [part.edge for part in log_parts(store, trial.id, log_reading.EVERY_LINE, at_once=60)] == [ids[59], ids[99]]
    assert list(log_parts(store, trial.id, LogFilter(level="ERROR"), after=ids[-1], at_once=5)) == []
    with pytest.raises(ValueError, match="unknown level 'LOUD'; expected one of DEBUG, "):
        store.logs(trial.id, level="LOUD")


def test_windows_that_take_too_long_become_shorter(
    store: TrackingStore, trial: TrialRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    time, read = datetime.now(timezone.utc), store.logs
    line = LogLine(trial_id=trial.id, run_id=1, rank=0, stdtype="stdout", log="line", time=time)
    store.add_logs([line] * 1000)

    def limited(trial_id: int, **options: Any) -> list[LogLine]:
        if options.get("search") and options["before"] - options["after"] > slow:
            raise CallTooLarge("slow")
        return read(trial_id, **options)

    monkeypatch.setattr(store, "logs", limited)
    slow = 300
    assert sum(len(part.lines) for part in log_parts(store, trial.id, LogFilter(search="line"), at_once=90)) == 1000
    slow = 5
    with pytest.raises(CallTooLarge):
        list(log_parts(store, trial.id, LogFilter(search="line"), at_once=90))


def test_a_line_has_a_known_level(store: TrackingStore, run: Run) -> None:
    line = LogLine(trial_id=run.trial_id, run_id=1, rank=0, stdtype="stdout", log="", time=datetime.now(timezone.utc))
    with pytest.raises(ValueError, match="unknown level 'LOUD'; expected one of DEBUG, INFO, WARNING, ERROR, CRITICAL"):
        store.add_logs([replace(line, level="LOUD")])
    assert list(store.logs(run.trial_id)) == []


def test_the_end_of_a_long_line_is_left_out(store: TrackingStore, run: Run) -> None:
    """Pages read thousands of lines."""
    long, time = "x" * 2 * LONGEST_LINE, datetime.now(timezone.utc)
    store.add_logs([LogLine(trial_id=run.trial_id, run_id=1, rank=0, stdtype=long, log=long, time=time)])
    (found,) = store.logs(run.trial_id)
    assert (len(found.log), len(found.stdtype)) == (LONGEST_LINE, LONGEST_LINE)
