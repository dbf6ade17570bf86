"""The framework under test, as all parts of its suite see it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import importlib_metadata
import pytest

from det_core.interfaces.tracking import Checkpoint
from det_core.plugins import Registry
from det_core.specs import FrameworkSpec, Spec
from det_core.testing._suite import Suite
from det_core.testing.framework._laboratory import BATCHES, REPORTED, Laboratory, Outcome
from det_core.trial import Trial

_EPOCHS = range(3, BATCHES // 2 + 1)
"""Batches per epoch with which all cases occur: killed amid one, at its end, and twice in one."""


@dataclass(frozen=True)
class Undisturbed:
    """A trial that nothing happened to."""

    outcome: Outcome
    checkpoint: Checkpoint
    batches_per_epoch: int | None


class FrameworkSuite(Suite):
    """What a subclass says about its framework."""

    plugin: ClassVar[str] = ""
    """The module that the framework's entry point in the group ``det`` names."""
    trial_class: ClassVar[type[Trial] | None] = None
    """A trial that trains something tiny, at the top of its module.

    It calls `reached` in each batch; an epoch has 3 to 7 of them, a validation at least 2. Batch metrics have under
    ``records`` what tells batches of the data apart. It draws random numbers, so that lost generators show.
    """
    hyperparameters: ClassVar[Mapping[str, Any]] = {"global_batch_size": 4}
    """Those of the trial."""
    metric: ClassVar[str] = "validation_loss"
    """A validation metric of the trial; smaller is better."""

    def weights(self, path: Path) -> Any:
        """Override this. Reads the weights from a checkpoint's directory: numbers, arrays, bytes, lists and dicts."""
        raise NotImplementedError(
            f"{type(self).__name__} must override weights(path); expected the weights that the checkpoint in the "
            "directory holds, for example: return json.loads((path / 'weights.json').read_text())"
        )

    @pytest.fixture(scope="class")
    @classmethod
    def registry(cls) -> Registry:
        assert cls.plugin, f"{cls.__name__} must say plugin = 'my_package.plugin'"
        found = Registry([importlib_metadata.EntryPoint(cls.plugin, cls.plugin, "det")])
        assert [report.problem for report in found.reports] == [""]
        return found

    @pytest.fixture(scope="class")
    @classmethod
    def spec(cls, registry: Registry) -> Spec:
        name = registry.choose("det_choose_framework", mro=mro(cls._trial_class()))
        assert name is not None, f"det_choose_framework of {cls.plugin} must name the framework of {cls.trial_class}"
        return registry.find("framework", name)

    @pytest.fixture
    def laboratory(self, spec: FrameworkSpec, tmp_path: Path) -> Iterator[Laboratory]:
        with self._laboratory(spec, tmp_path / "laboratory") as laboratory:
            yield laboratory

    @pytest.fixture(scope="class")
    @classmethod
    def undisturbed(cls, spec: FrameworkSpec, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Undisturbed]:
        with cls._laboratory(spec, tmp_path_factory.mktemp("undisturbed")) as laboratory:
            trial_id = laboratory.prepare()
            laboratory.train(trial_id)
            epoch = laboratory.witness.adapter.batches_per_epoch
            assert epoch is None or epoch in _EPOCHS, f"the trial's epochs have {epoch} batches; expected 3 to 7"
            assert laboratory.counts["training"], "the trial must call reached('training') in each batch"
            assert laboratory.counts["validation"] > 1, (
                "the trial must call reached('validation') in each batch of a validation, of which there are at least 2"
            )
            outcome = laboratory.outcome(trial_id)
            assert all("records" in row for row in outcome.rows), "each batch's metrics must have 'records'"
            yield Undisturbed(outcome, laboratory.checkpoints(trial_id)[-1], epoch)

    @classmethod
    def _trial_class(cls) -> type[Trial]:
        assert cls.trial_class, f"{cls.__name__} must say trial_class = MyTrial"
        assert "<locals>" not in cls.trial_class.__qualname__, (
            f"{cls.trial_class.__qualname__} is defined inside of a function, where other processes cannot import it; "
            "move it to the top of the module"
        )
        return cls.trial_class

    @classmethod
    @contextmanager
    def _laboratory(cls, spec: Spec, directory: Path) -> Iterator[Laboratory]:
        directory.mkdir(exist_ok=True)
        trial_class = cls._trial_class()
        config = {
            "name": "compliance",
            "entrypoint": f"{trial_class.__module__}:{trial_class.__qualname__}",
            "hyperparameters": dict(cls.hyperparameters),
            "searcher": {"name": "single", "metric": cls.metric},
            "scheduling_unit": REPORTED,
            "resources": {"slots_per_trial": 0},
        }
        laboratory = Laboratory(directory, spec.target, trial_class, config, cls().weights)
        with laboratory.store:
            yield laboratory


def mro(trial_class: type[Trial]) -> list[str]:
    """As ``det_choose_framework`` receives it."""
    return [f"{base.__module__}.{base.__qualname__}" for base in trial_class.__mro__]
