"""Attributes and fixtures that all parts of the framework suite share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from det_core.interfaces.records import CheckpointRecord
from det_core.plugins import Registry
from det_core.specs import FrameworkSpec, Spec
from det_core.trial import Trial
from det_testing._plugin_suite import PluginSuite
from det_testing.framework._recording_adapter import RecordingAdapter, RecordsWeights
from det_testing.framework.trial_harness import BATCHES, REPORT_PERIOD, TrainedTrial, TrialHarness

_EPOCHS = range(3, BATCHES // 2 + 1)
"""Numbers of batches per epoch for which a run is killed within an epoch, at its end, and twice in one."""


@dataclass(frozen=True)
class UndisturbedTraining:
    """Result of a trial that trained without incidents."""

    outcome: TrainedTrial
    """Weights and reports of the trial."""
    checkpoint: CheckpointRecord
    """Last checkpoint of the trial."""
    batches_per_epoch: int | None
    """Number of batches per epoch of the trial's data, or None if unknown."""
    batches: int
    """Number of batches that the trial has trained."""
    recorder: RecordingAdapter
    """Recorder of the initial weights, metrics, metadata and lengths of the run."""


class FrameworkSuite(PluginSuite):
    """Attributes that describe the framework, set by subclasses."""

    trial_class: ClassVar[type[Trial] | None] = None
    """Trial class that trains a tiny model, defined at the top level of its module.

    The trial calls `reach_point` in each batch. An epoch has 3 to 7 batches, and a validation at least 2. Batch metrics
    contain under ``records`` a value that differs between batches of the data. The trial draws random numbers, for its
    initial weights and in training, so that the suite notices generators that are not restored."""
    hyperparameters: ClassVar[Mapping[str, Any]] = {"global_batch_size": 4}
    """Hyperparameters of the trial."""
    metric: ClassVar[str] = "validation_loss"
    """Validation metric of the trial. Smaller values are better."""
    config: ClassVar[Mapping[str, Any]] = {}
    """Further config keys of the trial."""

    def weights(self, path: Path) -> Any:
        """Return the weights in a checkpoint's directory. Subclasses must override this.

        Returns:
            Numbers, arrays or bytes, possibly in lists and dicts.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must override weights(path); expected the weights in the checkpoint's directory, "
            "for example: return json.loads((path / 'weights.json').read_text())"
        )

    def replace_weights(self, path: Path, source: Path) -> None:
        """Replace the weights in the directory of one checkpoint by those in another. Subclasses must override this.

        Everything else in the checkpoint stays as it is.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must override replace_weights(path, source); expected the weights of the "
            "checkpoint in `source` in that in `path`, for example: shutil.copy(source / 'weights.json', path)"
        )

    @pytest.fixture(scope="class")
    @classmethod
    def spec(cls, registry: Registry) -> Spec:
        """Return the spec of the framework."""
        name = registry.choose("det_choose_framework", mro=list_base_classes(cls._trial_class()))
        assert name is not None, f"det_choose_framework of {cls.plugin} must name the framework of {cls.trial_class}"
        return registry.find("framework", name)

    @pytest.fixture
    def harness(self, spec: FrameworkSpec, tmp_path: Path) -> Iterator[TrialHarness]:
        """Return an environment for one test."""
        with self._harness(spec, tmp_path / "harness") as harness:
            yield harness

    @pytest.fixture(scope="class")
    @classmethod
    def undisturbed(
        cls, spec: FrameworkSpec, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[UndisturbedTraining]:
        """Return the result of a trial without incidents, which is trained once per class."""
        with cls._harness(spec, tmp_path_factory.mktemp("undisturbed")) as harness:
            trial_id = harness.prepare()
            harness.train(trial_id, recorder=partial(RecordsWeights, harness.weights_of))
            recorder, batches = harness.recorder, harness.counts["training"]
            epoch = recorder.adapter.batches_per_epoch
            assert epoch is None or epoch in _EPOCHS, f"the trial's epochs have {epoch} batches; expected 3 to 7"
            assert batches, "the trial must call reach_point('training') in each batch"
            assert harness.counts["validation"] > 1, (
                "the trial must call reach_point('validation') in each batch of a validation, which has at least 2"
            )
            outcome = harness.outcome(trial_id)
            assert all("records" in row for row in outcome.rows), "each batch's metrics must have 'records'"
            yield UndisturbedTraining(outcome, harness.checkpoints(trial_id)[-1], epoch, batches, recorder)

    @classmethod
    def _trial_class(cls) -> type[Trial]:
        assert cls.trial_class, f"{cls.__name__} must set trial_class = MyTrial"
        assert "<locals>" not in cls.trial_class.__qualname__, (
            f"{cls.trial_class.__qualname__} is defined inside a function, so other processes cannot import it; "
            "move it to the top level of the module"
        )
        return cls.trial_class

    @classmethod
    @contextmanager
    def _harness(cls, spec: Spec, directory: Path) -> Iterator[TrialHarness]:
        directory.mkdir(exist_ok=True)
        trial_class = cls._trial_class()
        config = {
            "name": "compliance",
            "entrypoint": f"{trial_class.__module__}:{trial_class.__qualname__}",
            "hyperparameters": dict(cls.hyperparameters),
            "searcher": {"name": "single", "metric": cls.metric},
            "scheduling_unit": REPORT_PERIOD,
            "resources": {"slots_per_trial": 0},
            "rehearsal": False,
            **cls.config,
        }
        harness = TrialHarness(directory, spec.target, trial_class, config, cls().weights)
        with harness.store:
            yield harness


def list_base_classes(trial_class: type[Trial]) -> list[str]:
    """Return the names of a class and its bases as ``det_choose_framework`` receives them."""
    return [f"{base.__module__}.{base.__qualname__}" for base in trial_class.__mro__]
