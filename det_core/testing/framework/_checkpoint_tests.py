"""Tests that checkpoints are complete, unaffected by later training, and free of code."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path

import pytest

from det_core.errors import CheckpointCorrupt
from det_core.interfaces.framework import Metrics, TrialAdapter
from det_core.testing.framework._framework_suite import FrameworkSuite, UndisturbedTraining
from det_core.testing.framework._recording_adapter import RecordingAdapter
from det_core.testing.framework.trial_harness import BATCHES, TrialHarness

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


class RecordsWeights(RecordingAdapter):
    """Witness that records the weights at the beginning of training."""

    def __init__(self, harness: TrialHarness, adapter: TrialAdapter) -> None:
        super().__init__(adapter)
        self._harness = harness

    def started(self) -> None:
        self.adapter.started()
        self.begun_with = self._harness.weights_of(self.adapter)


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

    def test_a_warm_start_takes_the_weights(self, harness: TrialHarness) -> None:
        """With ``batches_trained == 0``, the checkpoint belongs to another trial, and its weights are loaded."""
        source, trial_id = harness.prepare(length={"batches": 5}), harness.prepare()
        harness.train(source)
        checkpoint = harness.checkpoints(source)[-1]
        harness.train(trial_id, latest=checkpoint.uuid, recorder=partial(RecordsWeights, harness))
        assert harness.recorder.begun_with == harness.weights(checkpoint)

    def test_a_warm_start_begins_with_the_first_batch(
        self, harness: TrialHarness, undisturbed: UndisturbedTraining
    ) -> None:
        """Only the weights come from the other trial. Data, counts and length are those of a new trial."""
        source, trial_id = harness.prepare(length={"batches": 5}), harness.prepare()
        harness.train(source)
        harness.train(trial_id, latest=harness.checkpoints(source)[-1].uuid)
        outcome = harness.outcome(trial_id)
        assert [row["records"] for row in outcome.rows] == [row["records"] for row in undisturbed.outcome.rows]
        assert outcome.weights != undisturbed.outcome.weights

    def test_metadata_tells_framework_and_format(self, undisturbed: UndisturbedTraining) -> None:
        """The metadata determines how to read the files, even years later."""
        metadata = undisturbed.checkpoint.metadata
        assert [key for key in ("framework", "format") if not isinstance(metadata.get(key), str)] == []

    def test_loading_runs_no_code(self, harness: TrialHarness) -> None:
        """People exchange checkpoints. One that could run code would have to be trusted like a program."""
        trial_id = harness.prepare()
        harness.train(trial_id, ("training", 5, "leave"))
        harness.train(trial_id, recorder=RefusesCode)
