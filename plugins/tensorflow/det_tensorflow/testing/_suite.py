"""Tests that several slots train the same model as one slot, and resume after a kill, with each framework."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
from det_testing.comparison import bitwise_form
from det_testing.suite import ComplianceSuite
from det_testing.trial_job import BATCHES, InjectedFailure, TrialJob
from sklearn.metrics import roc_auc_score

from det_tensorflow.testing.code.common import VALIDATION
from det_tensorflow.testing.jobs import AGGREGATED, METRICS, Jobs, make_tensorflow_jobs

EACH_FRAMEWORK = pytest.mark.parametrize("framework", METRICS)


class AdapterCompliance(ComplianceSuite):
    """Compliance suite for an adapter. Derive from it and set ``backend``. Redefining a test is an error."""

    backend: ClassVar[str] = ""
    """Name of the backend, as in ``distributed: {backend: ...}``. Its plugin must be installed."""
    options: ClassVar[Mapping[str, Any]] = {}
    """Further keys of the ``distributed`` block."""
    tolerance: ClassVar[float] = 1e-5
    """Absolute and relative tolerance of weights, losses and metrics, compared to training on one slot."""
    limit: ClassVar[float] = 200.0
    """Maximum duration of a trial's run in seconds, including its start."""

    @pytest.fixture(scope="class")
    @classmethod
    def jobs(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
        """All jobs of the class."""
        assert cls.backend, f"{cls.__name__} must set backend = 'the name of the backend'"
        distributed = {"backend": cls.backend, **cls.options}
        with make_tensorflow_jobs(tmp_path_factory.mktemp("jobs"), distributed, cls.limit) as jobs:
            yield jobs

    @pytest.mark.integration
    @pytest.mark.slow
    @EACH_FRAMEWORK
    @pytest.mark.parametrize("trial", ["{}", AGGREGATED], ids=["plain", "aggregated"])
    def test_two_slots_train_what_one_does(self, jobs: Jobs, trial: str, framework: str) -> None:
        """Gradients are averaged over slots and aggregated batches, and all slots start from the chief's weights."""
        one, two = (jobs.undisturbed(trial.format(framework), slots).ended() for slots in (1, 2))
        self.assert_close(two, one)
        assert len(one.losses()) == BATCHES

    @pytest.mark.integration
    @pytest.mark.slow
    @EACH_FRAMEWORK
    def test_a_rehearsal_changes_nothing(self, jobs: Jobs, framework: str) -> None:
        """Each slot evaluates a batch before the first batch, even if that fails, and both train as without it."""
        config = {"perform_initial_validation": False}
        with_one, without = (jobs.make(framework, **config, rehearsal=on).start(2).ended() for on in (True, False))
        assert bitwise_form(with_one.outcome()) == bitwise_form(without.outcome())

    @pytest.mark.integration
    @pytest.mark.slow
    def test_four_slots_train_what_one_does(self, jobs: Jobs) -> None:
        one, four = (jobs.undisturbed("keras", slots).ended() for slots in (1, 4))
        self.assert_close(four, one)

    @pytest.mark.integration
    @pytest.mark.slow
    @EACH_FRAMEWORK
    def test_validation_is_of_all_data_once(self, jobs: Jobs, framework: str) -> None:
        """The slots have different numbers of validation records and batches."""
        one, two = (jobs.undisturbed(framework, slots).ended().metrics("validation") for slots in (1, 2))
        assert [steps for steps, *_ in two] == [0, 7, BATCHES]
        for (_, expected, _), (_, metrics, _) in zip(one, two, strict=True):
            names = [name for name in expected if name.startswith("val") or name == "auc"]
            assert METRICS[framework] in names
            assert len(names) == 2
            for name in names:
                np.testing.assert_allclose(metrics[name], expected[name], self.tolerance, self.tolerance)

    @pytest.mark.integration
    @pytest.mark.slow
    def test_metrics_of_estimators_are_exact(self, jobs: Jobs) -> None:
        """A metric of `EstimatorTrialContext.make_metric` equals the one of the same model on the whole set."""
        two = jobs.undisturbed("estimator", 2).ended()
        weights = two.weights()
        features, labels = VALIDATION
        hidden = np.tanh(features @ weights["dense/kernel"] + weights["dense/bias"])
        scores = hidden @ weights["dense_1/kernel"] + weights["dense_1/bias"]
        steps, metrics, _ = two.metrics("validation")[-1]
        assert (steps, metrics["auc"]) == (BATCHES, pytest.approx(roc_auc_score(labels, scores), abs=1e-12))

    @pytest.mark.integration
    @pytest.mark.slow
    @EACH_FRAMEWORK
    def test_killed_and_resumed_is_as_if_undisturbed(self, jobs: Jobs, framework: str) -> None:
        """The results are equal bit for bit."""
        trial = AGGREGATED.format(framework)
        killed, undisturbed = jobs.make(trial), jobs.undisturbed(trial, 2)
        assert killed.run(2, InjectedFailure("kill", 1, 11)) != 0, killed.output()
        assert killed.steps() == 9
        assert bitwise_form(killed.start(2).ended().outcome()) == bitwise_form(undisturbed.ended().outcome())

    def assert_close(self, one: TrialJob, other: TrialJob) -> None:
        """Compare the weights, the optimizer states and the losses of all batches, within ``tolerance``.

        Args:
            one: a job that has ended.
            other: the job to compare it with.

        Raises:
            AssertionError: they differ.
        """
        mine, theirs = one.weights(), other.weights()
        assert mine.keys() == theirs.keys()
        for name, value in mine.items():
            np.testing.assert_allclose(value, theirs[name], self.tolerance, self.tolerance, err_msg=name)
        np.testing.assert_allclose(one.losses(), other.losses(), self.tolerance, self.tolerance)
