"""Tests that checkpoints are complete, unaffected by later training, and free of code."""

from __future__ import annotations

import shutil
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path

import pytest

from det_core.errors import CheckpointCorrupt, DiskError
from det_core.interfaces.framework import Metrics, TrialAdapter
from det_core.interfaces.records import CheckpointRecord
from det_core.specs import FrameworkSpec
from det_testing.framework._framework_suite import FrameworkSuite, UndisturbedTraining
from det_testing.framework._recording_adapter import RecordingAdapter, RecordsWeights
from det_testing.framework.trial_harness import BATCHES, SEED, TrialHarness
from det_testing.small_disk import fill_disk, small_disk

STOPS: dict[str, list[int]] = {
    "once": [5],
    "four times": [2, 6, 7, 10],
    "after every batch": [*range(1, BATCHES)],
}
"""Batches after which a trial is asked to stop. Some are between two reports, and two are in one epoch."""
_LIMIT = 60.0
"""Time limit in seconds for training until the next report."""


class WritesLate(RecordingAdapter):
    """Witness that delays writing the first snapshot until later batches were trained."""

    def __init__(self, adapter: TrialAdapter) -> None:
        super().__init__(adapter)
        self._taken = False
        self._trained = threading.Event()

    def trained(self, rows: Sequence[Metrics]) -> None:
        super().trained(rows)
        if self._taken:
            self._trained.set()

    def snapshot(self) -> Callable[[Path], None]:
        write, first = self.adapter.snapshot(), not self._taken
        self._taken = True

        def late(path: Path) -> None:
            assert not first or self._trained.wait(_LIMIT), "training did not continue while the checkpoint was written"
            write(path)

        return late if self.adapter.writes_behind else write


class CannotWrite(RecordingAdapter):
    """Witness whose snapshots are written to a file instead of a directory, which fails."""

    def snapshot(self) -> Callable[[Path], None]:
        write = self.adapter.snapshot()

        def fail(path: Path) -> None:
            (path / "file").touch()
            write(path / "file")

        return fail


class LoadsElsewhere(RecordingAdapter):
    """Witness that loads another directory than that of the checkpoint."""

    def __init__(self, directory: Path, adapter: TrialAdapter) -> None:
        super().__init__(adapter)
        self._directory = directory

    def load(self, path: Path, *, batches_trained: int) -> None:
        self.adapter.load(self._directory, batches_trained=batches_trained)


class CodeInCheckpoint(Exception):
    """Loading imported a name from the checkpoint, which could refer to any code."""


class RefusesCode(RecordingAdapter):
    """Witness that fails if a pickle refers to a class or function while a checkpoint is loaded."""

    _loading = False

    def load(self, path: Path, *, batches_trained: int) -> None:
        _listen()
        RefusesCode._loading = True
        try:
            self.adapter.load(path, batches_trained=batches_trained)
        finally:
            RefusesCode._loading = False


@cache
def _listen() -> None:
    def audit(event: str, arguments: tuple[object, ...]) -> None:
        if RefusesCode._loading and event == "pickle.find_class":
            raise CodeInCheckpoint(f"the checkpoint names {'.'.join(map(str, arguments))}; save data only")

    sys.addaudithook(audit)  # audit hooks cannot be removed


class FrameworkCheckpointTests(FrameworkSuite):
    """Tests that training continues from checkpoints exactly."""

    @pytest.mark.parametrize("times", STOPS)
    def test_resumed_is_as_if_undisturbed(
        self, harness: TrialHarness, undisturbed: UndisturbedTraining, times: str
    ) -> None:
        """Weights, metrics and reports are equal bit by bit, because optimizers, generators and data are restored."""
        trial_id, batch = harness.prepare(), 0
        for leaves in STOPS[times]:
            harness.train(trial_id, ("training", leaves - batch - 1, "leave"))
            batch = leaves
        harness.train(trial_id)
        assert harness.outcome(trial_id) == undisturbed.outcome

    def test_the_timer_saves_a_checkpoint_and_changes_nothing(
        self, harness: TrialHarness, undisturbed: UndisturbedTraining, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Without a checkpoint period, a power cut costs minutes instead of the whole training."""
        now = [0.0]
        monkeypatch.setattr("det_core.trial.checkpoints.monotonic", lambda: now[0])
        trial_id = harness.prepare(checkpoint_interval=900)
        with pytest.raises(Exception):  # noqa: B017, PT011  (a framework may wrap the error in its own)
            harness.train(trial_id, ("training", 5, lambda: now.append(now.pop() + 900)), ("training", 10, "fail"))
        assert [one.steps_completed for one in harness.checkpoints(trial_id)] == [6], "expected one between two reports"
        harness.train(trial_id, ("training", 1, lambda: now.append(now.pop() + 900)))
        assert [one.steps_completed for one in harness.checkpoints(trial_id)] == [6, 8, BATCHES]
        assert harness.outcome(trial_id) == undisturbed.outcome

    def test_killed_is_as_if_undisturbed(self, harness: TrialHarness, undisturbed: UndisturbedTraining) -> None:
        """The trial runs in another process, which is killed and computes the same as this process."""
        trial_id = harness.prepare(min_checkpoint_period={"batches": 4}, checkpoint_policy="none")
        code, said = harness.train_elsewhere(trial_id, ("training", 9, "die"))
        assert code == -signal.SIGKILL, said
        assert harness.checkpoints(trial_id)
        harness.train(trial_id)
        assert harness.outcome(trial_id) == undisturbed.outcome

    def test_a_damaged_checkpoint_is_passed_over(self, harness: TrialHarness, undisturbed: UndisturbedTraining) -> None:
        """The run that finds the damage fails, and the next run starts from the previous checkpoint."""
        trial_id = harness.prepare(min_checkpoint_period={"batches": 4}, checkpoint_policy="none")
        harness.train(trial_id, ("training", 9, "leave"))
        *_, intact, newest = harness.checkpoints(trial_id)
        harness.damage(newest)
        with pytest.raises(CheckpointCorrupt, match=newest.uuid):
            harness.train(trial_id)
        assert harness.checkpoints(trial_id)[-1] == intact
        harness.train(trial_id)
        assert harness.outcome(trial_id) == undisturbed.outcome

    def test_a_snapshot_stays_as_it_was_taken(self, harness: TrialHarness, undisturbed: UndisturbedTraining) -> None:
        """With ``writes_behind``, batches are trained before the snapshot is written. It must not contain them."""
        trial_id = harness.prepare(min_checkpoint_period={"batches": 4}, checkpoint_policy="none")
        harness.train(trial_id, recorder=WritesLate)
        if not harness.recorder.adapter.writes_behind:
            pytest.skip("training waits until the snapshot is written")
        for later in harness.checkpoints(trial_id)[1:]:
            harness.store.delete_checkpoint(later.uuid)
        harness.train(trial_id)
        assert harness.outcome(trial_id) == undisturbed.outcome

    def test_a_failed_write_makes_no_checkpoint(self, harness: TrialHarness) -> None:
        """If a write fails, for example on a full disk, the checkpoint must not seem to exist."""
        trial_id = harness.prepare()
        with pytest.raises(Exception):  # noqa: B017, PT011  (libraries raise different errors)
            harness.train(trial_id, recorder=CannotWrite)
        assert harness.checkpoints(trial_id) == []

    @pytest.mark.parametrize("left", [0, 8192], ids=["at once", "in between"])
    def test_a_full_disk_is_named(self, harness: TrialHarness, tmp_path: Path, left: int) -> None:
        """Libraries report it in their own ways. The error must say which disk it is, and pause the trial."""
        with small_disk(tmp_path / "disk", size=1 << 20) as disk:
            fill_disk(disk, left=left)
            trial_id = harness.prepare(checkpoint_storage={"type": "directory", "container_path": str(disk)})
            with pytest.raises(DiskError, match=rf"the disk of {disk}\b.* \(0 MB free\) has no space left"):
                harness.train(trial_id)
        assert harness.checkpoints(trial_id) == []

    def test_a_warm_start_takes_the_weights(self, harness: TrialHarness) -> None:
        """With ``batches_trained == 0``, the checkpoint belongs to another trial, and its weights are loaded."""
        checkpoint, trial_id = self._source(harness, SEED, 5), harness.prepare()
        harness.train(trial_id, latest=checkpoint.uuid, recorder=partial(RecordsWeights, harness.weights_of))
        assert harness.recorder.begun_with == harness.weights(checkpoint)

    def test_a_warm_start_takes_only_the_weights(
        self, harness: TrialHarness, undisturbed: UndisturbedTraining, tmp_path: Path
    ) -> None:
        """Optimizers, generators, data and counts are those of a new trial, whatever else the checkpoint contains."""
        source, other = self._source(harness, SEED, 5), self._source(harness, SEED + 1, 3)
        mixed = shutil.copytree(harness.directory_of(other), tmp_path / "mixed", copy_function=shutil.copyfile)
        self.replace_weights(mixed, harness.directory_of(source))
        outcomes = []
        for recorder in (RecordingAdapter, partial(LoadsElsewhere, mixed)):
            trial_id = harness.prepare(length={"batches": 6})
            harness.train(trial_id, latest=source.uuid, recorder=recorder)
            outcomes.append(harness.outcome(trial_id))
        assert outcomes[0] == outcomes[1], "two checkpoints with the same weights start the trial differently"
        assert outcomes[0].records == undisturbed.outcome.records[:6], "training did not begin with the first batch"

    def test_metadata_tells_framework_and_format(self, spec: FrameworkSpec, undisturbed: UndisturbedTraining) -> None:
        """The metadata determines how to read the files, even years later, and which framework loads them."""
        metadata = undisturbed.checkpoint.metadata
        assert [key for key in ("framework", "format") if not isinstance(metadata.get(key), str)] == []
        if spec.load or spec.loading:
            assert metadata.get("trial_framework") == spec.name

    def test_loading_runs_no_code(self, harness: TrialHarness) -> None:
        """People exchange checkpoints. One that could run code would have to be trusted like a program."""
        trial_id = harness.prepare()
        harness.train(trial_id, ("training", 5, "leave"))
        harness.train(trial_id, recorder=RefusesCode)

    @staticmethod
    def _source(harness: TrialHarness, seed: int, batches: int) -> CheckpointRecord:
        """Train another trial for some batches, between two reports, and return its checkpoint."""
        trial_id = harness.prepare(seed=seed)
        harness.train(trial_id, ("training", batches - 1, "leave"))
        return harness.checkpoints(trial_id)[-1]
