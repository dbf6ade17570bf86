"""Frameworks with one defect each, and the tests of the suite that catch it.

test_framework.py runs the tests.
"""

from __future__ import annotations

import json
import logging
import pickle
import random
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import det_core
from det_core.core import Context
from det_core.errors import CheckpointCorrupt
from det_core.interfaces.framework import Metrics, OnAllWorkers
from det_core.specs import FrameworkSpec
from det_core.trial import TrainingPlan, TrialContext, TrialLoop

sys.path.append(str(Path(__file__).parents[3] / "examples" / "framework_plugin"))

from det_descent import DescentAdapter
from test_descent import Line  # imports pytest, which is not light

FILE = "descent.json"


def never() -> bool:
    return False


class Sound(DescentAdapter):
    """Base class of all frameworks here, without a defect."""


class TrainsWholeEpochs(Sound):
    def train(self, batches: int, stop: Callable[[], bool]) -> list[Metrics]:
        return super().train(-(-batches // self.batches_per_epoch) * self.batches_per_epoch, stop)


class TellsRecordsPerSlot(Sound):
    @property
    def records_per_batch(self) -> int:
        return 1


class TellsTheMeanOfAChunk(Sound):
    def train(self, batches: int, stop: Callable[[], bool]) -> list[Metrics]:
        return super().train(batches, stop)[-1:]


class TellsOtherTypes(Sound):
    def train_batch(self) -> Metrics:
        metrics = super().train_batch()
        return {**metrics, "exact": Fraction(1, 2)}


class SkipsTheFirstReport(Sound):
    def train(self, batches: int, stop: Callable[[], bool]) -> list[Metrics]:
        return super().train(batches if self.batch else 2 * batches, stop)


class LearnsItsLength(Sound):
    @property
    def batches_per_epoch(self) -> int:
        return super().batches_per_epoch if self.batch < 5 else 6


class HasNoRecords(Sound):
    @property
    def records_per_batch(self) -> int:
        return 0


class DrawsFromTheSystem(Sound):
    def generator(self, purpose: str) -> random.Random:
        return random.SystemRandom() if purpose == "validation" else super().generator(purpose)


class SeedsByHash(Sound):
    def generator(self, purpose: str) -> random.Random:
        return random.Random(hash(f"{self.seed} {purpose}"))


class IgnoresTheSeed(Sound):
    def generator(self, purpose: str) -> random.Random:
        return random.Random(purpose)


class InitializesAlike(Sound):
    def __init__(self, trial: Line) -> None:
        super().__init__(trial)
        self.weights, *_ = trial.build(random.Random(0))


class ShufflesAlike(Sound):
    def generator(self, purpose: str) -> random.Random:
        return random.Random(purpose) if purpose.startswith("epoch") else super().generator(purpose)


class ShufflesOnce(Sound):
    def generator(self, purpose: str) -> random.Random:
        return super().generator("epoch" if purpose.startswith("epoch") else purpose)


class RepeatsABatch(Sound):
    def train_batch(self) -> Metrics:
        batch = self.batch
        self.batch -= batch % self.batches_per_epoch == 1
        metrics = super().train_batch()
        self.batch = batch + 1
        return metrics


class BuffersMetrics(Sound):
    """Framework whose metrics of a batch are all the same object."""

    def train_batch(self) -> Metrics:
        self.metrics = vars(self).get("metrics", {})
        self.metrics.update(super().train_batch())
        return self.metrics


class ValidatesOnward(Sound):
    """Framework whose validations go on with the random numbers of the previous one."""

    def generator(self, purpose: str) -> random.Random:
        if purpose != "validation":
            return super().generator(purpose)
        self.of_validation = vars(self).get("of_validation") or super().generator(purpose)
        return self.of_validation


class ValidatesWithItsGenerator(Sound):
    def generator(self, purpose: str) -> random.Random:
        return self.random if purpose == "validation" else super().generator(purpose)


class ValidatesWithAverages(Sound):
    """Framework that restores the weights only if the validation is completed."""

    def validate(self, stop: Callable[[], bool]) -> Metrics | None:
        kept, self.weights = self.weights, [weight / 2 for weight in self.weights]
        metrics = super().validate(stop)
        if metrics is not None:
            self.weights = kept
        return metrics


class RehearsesOnward(Sound):
    """Framework whose rehearsal draws from the generator of the training."""

    def rehearse(self, together: OnAllWorkers) -> Metrics | None:
        together(self.random.random)
        return super().rehearse(together)


class RehearsesWithoutNames(Sound):
    def rehearse(self, together: OnAllWorkers) -> Metrics | None:
        super().rehearse(together)
        return None


class RehearsesNothing(Sound):
    """The defect is in `run_trial`."""


class StaysUntilTheReport(Sound):
    def train(self, batches: int, stop: Callable[[], bool]) -> list[Metrics]:
        return super().train(batches, never)


class DropsTheLastBatch(Sound):
    def train(self, batches: int, stop: Callable[[], bool]) -> list[Metrics]:
        rows = super().train(batches, stop)
        return rows[:-1] if stop() else rows


class LeavesTheStep(Sound):
    def train(self, batches: int, stop: Callable[[], bool]) -> list[Metrics]:
        asked = self.trial.context.get_stop_requested
        rows = super().train(batches, lambda: stop() or asked())
        return [] if asked() else rows


class ValidatesToTheEnd(Sound):
    def validate(self, stop: Callable[[], bool]) -> Metrics | None:
        metrics = super().validate(never)
        return None if stop() else metrics


class TellsHalfAValidation(Sound):
    def validate(self, stop: Callable[[], bool]) -> Metrics | None:
        return super().validate(stop) or {"validation_loss": 0.0}


class PassesOverErrors(Sound):
    def train_batch(self) -> Metrics:
        with suppress(Exception):
            return super().train_batch()
        return {"records": []}


class PassesOverErrorsOfValidation(Sound):
    def validate(self, stop: Callable[[], bool]) -> Metrics | None:
        with suppress(Exception):
            return super().validate(stop)
        return {"validation_loss": 1e9}


class HidesTheBatch(Sound):
    def train_batch(self) -> Metrics:
        logging.disable()
        try:
            return super().train_batch()
        finally:
            logging.disable(logging.NOTSET)


class LeavesAThread(Sound):
    def __init__(self, trial: Line) -> None:
        super().__init__(trial)
        threading.Thread(target=threading.Event().wait, args=(20,), daemon=True).start()


class ForgetsTheGenerator(Sound):
    def load(self, path: Path, *, batches_trained: int) -> None:
        kept = self.random.getstate()
        super().load(path, batches_trained=batches_trained)
        self.random.setstate(kept)


class ForgetsTheMomentum(Sound):
    def load(self, path: Path, *, batches_trained: int) -> None:
        super().load(path, batches_trained=batches_trained)
        self.velocity = [0.0 for _ in self.velocity]


class ForgetsWhatIsNotReported(Sound):
    def load(self, path: Path, *, batches_trained: int) -> None:
        super().load(path, batches_trained=batches_trained)
        self.steepest = 0.0


class SkipsABatch(Sound):
    def load(self, path: Path, *, batches_trained: int) -> None:
        super().load(path, batches_trained=batches_trained and batches_trained + 1)


class RepeatsTheEpoch(Sound):
    def load(self, path: Path, *, batches_trained: int) -> None:
        super().load(path, batches_trained=batches_trained)
        self.batch -= self.batch % self.batches_per_epoch


class RoundsWeights(Sound):
    def load(self, path: Path, *, batches_trained: int) -> None:
        super().load(path, batches_trained=batches_trained)
        self.weights = [round(weight, 7) for weight in self.weights]


class RefersToItself(Sound):
    def snapshot(self) -> Callable[[Path], None]:
        return lambda path: DescentAdapter.snapshot(self)(path)


class PassesOverFullDisks(Sound):
    def snapshot(self) -> Callable[[Path], None]:
        write = super().snapshot()

        def careless(path: Path) -> None:
            with suppress(OSError):
                write(path)

        return careless


class HidesFullDisks(Sound):
    def snapshot(self) -> Callable[[Path], None]:
        write = super().snapshot()

        def hide(path: Path) -> None:
            with suppress(OSError):
                write(path)
                return
            raise ValueError("the checkpoint could not be written")

        return hide


class PassesOverDamage(Sound):
    """The defect is in `run_trial`."""


class StartsCold(Sound):
    def load(self, path: Path, *, batches_trained: int) -> None:
        if batches_trained:
            super().load(path, batches_trained=batches_trained)


class ContinuesTheOther(Sound):
    def load(self, path: Path, *, batches_trained: int) -> None:
        super().load(path, batches_trained=batches_trained or 5)


class KeepsTheMomentum(Sound):
    def load(self, path: Path, *, batches_trained: int) -> None:
        super().load(path, batches_trained=batches_trained)
        self.velocity = json.loads((path / FILE).read_text())["velocity"]


class KeepsTheGenerator(Sound):
    def load(self, path: Path, *, batches_trained: int) -> None:
        super().load(path, batches_trained=batches_trained)
        version, numbers, gauss = json.loads((path / FILE).read_text())["random"]
        self.random.setstate((version, tuple(numbers), gauss))


class KeepsWhatIsNotReported(Sound):
    def load(self, path: Path, *, batches_trained: int) -> None:
        super().load(path, batches_trained=batches_trained)
        self.steepest = json.loads((path / FILE).read_text())["steepest"]


class KeepsStateElsewhere(Sound):
    """Framework whose momentum is in a file of its own, which is that of the latest checkpoint."""

    def snapshot(self) -> Callable[[Path], None]:
        write, velocity = super().snapshot(), self.velocity

        def elsewhere(path: Path) -> None:
            write(path)
            (path.parent / "velocity").write_text(json.dumps(velocity))

        return elsewhere

    def load(self, path: Path, *, batches_trained: int) -> None:
        super().load(path, batches_trained=batches_trained)
        if batches_trained:
            self.velocity = json.loads((path.parent / "velocity").read_text())


class ReadsTheClock(Sound):
    def generator(self, purpose: str) -> random.Random:
        return random.Random(f"{int(time.time())} {purpose}")


class SaysNothing(Sound):
    def metadata(self) -> Metrics:
        return {}


class HidesItsName(Sound):
    def metadata(self) -> Metrics:
        return {"framework": "descent", "format": "json"}


class Pickles(Sound):
    def snapshot(self) -> Callable[[Path], None]:
        write = super().snapshot()

        def pickled(path: Path) -> None:
            write(path)
            state = OrderedDict(json.loads((path / FILE).read_text()))
            (path / "descent.pickle").write_bytes(pickle.dumps(state))

        return pickled

    def load(self, path: Path, *, batches_trained: int) -> None:
        pickle.loads((path / "descent.pickle").read_bytes())
        super().load(path, batches_trained=batches_trained)


class TrainsCopies(Sound):
    """The defect is in `det_frameworks`, which does not say that the framework needs an adapter."""


class SharesBatches(Sound):
    """Framework without a defect, whose workers divide each batch, with random numbers of their own."""

    def __init__(self, trial: Line) -> None:
        super().__init__(trial)
        self.workers, self.gradient = trial.context.distributed, trial.gradient
        self.random = self.generator(f"slot {self.workers.rank}")
        trial.gradient = self.share

    def share(self, weights: list[float], batch: Sequence[int], random: random.Random) -> tuple[list[float], Metrics]:
        part, metrics = self.gradient(weights, batch[self.workers.rank :: self.workers.size], random)
        return self.combine(part), metrics

    def combine(self, part: list[float]) -> list[float]:
        return [sum(slopes) for slopes in zip(*self.workers.allgather(part), strict=True)]

    def snapshot(self) -> Callable[[Path], None]:
        write, generators = super().snapshot(), self.workers.gather(self.random.getstate())

        def write_all(path: Path) -> None:
            write(path)
            (path / "generators").write_text(json.dumps(generators))

        return write_all

    def load(self, path: Path, *, batches_trained: int) -> None:
        super().load(path, batches_trained=batches_trained)
        version, numbers, gauss = json.loads((path / "generators").read_text())[self.workers.rank]
        self.random.setstate((version, tuple(numbers), gauss))


class CombinesNothing(SharesBatches):
    def combine(self, part: list[float]) -> list[float]:
        return part


class ValidatesApart(SharesBatches):
    def validate(self, stop: Callable[[], bool]) -> Metrics | None:
        metrics = super().validate(stop)
        return metrics and {"validation_loss": metrics["validation_loss"] + self.workers.rank}


class LoadsTheGeneratorOfTheChief(SharesBatches):
    def load(self, path: Path, *, batches_trained: int) -> None:
        DescentAdapter.load(self, path, batches_trained=batches_trained)


class IsHeavy(Sound):
    """The defect is this module, which imports pytest."""


class ClaimsAll(Sound):
    """The defect is in `det_choose_framework`."""


class CannotBeShown(Sound):
    """The defect is in `det_frameworks`."""


class QuotesItsPathOnce(Sound):
    """The defect is in `det_frameworks`."""


class LosesItsStarter(Sound):
    """The defect is in `det_frameworks`."""


CAUGHT_BY: dict[type[Sound], list[str]] = {
    TrainsWholeEpochs: ["trains_as_long_as_asked[batches]"],
    TellsRecordsPerSlot: ["trains_as_long_as_asked[records]"],
    LearnsItsLength: ["lengths_are_positive_and_constant"],
    HasNoRecords: ["lengths_are_positive_and_constant"],
    TellsTheMeanOfAChunk: ["every_batch_has_metrics"],
    TellsOtherTypes: ["metrics_and_metadata_are_plain"],
    SkipsTheFirstReport: ["reports_come_when_they_are_due"],
    DrawsFromTheSystem: ["the_same_seed_trains_the_same"],
    SeedsByHash: ["killed_is_as_if_undisturbed"],
    ReadsTheClock: ["the_same_seed_trains_the_same"],
    IgnoresTheSeed: ["another_seed_trains_otherwise"],
    InitializesAlike: ["another_seed_trains_otherwise"],
    ShufflesAlike: ["another_seed_trains_otherwise"],
    ShufflesOnce: ["each_epoch_has_an_order_of_its_own"],
    RepeatsABatch: ["each_epoch_has_an_order_of_its_own"],
    BuffersMetrics: ["each_epoch_has_an_order_of_its_own"],
    ValidatesOnward: ["validation_does_not_change_training"],
    ValidatesWithItsGenerator: ["validation_does_not_change_training"],
    ValidatesWithAverages: ["a_validation_cut_short_does_not_change_training"],
    RehearsesOnward: ["a_rehearsal_changes_nothing"],
    RehearsesWithoutNames: ["a_rehearsal_finds_a_wrong_metric"],
    RehearsesNothing: ["a_rehearsal_finds_an_unusable_storage"],
    StaysUntilTheReport: ["leaves_after_the_batch", "the_timer_saves_a_checkpoint_and_changes_nothing"],
    DropsTheLastBatch: ["leaves_after_the_batch", "resumed_is_as_if_undisturbed[once]"],
    LeavesTheStep: ["a_stop_request_finishes_the_step[at once]"],
    ValidatesToTheEnd: ["leaves_between_two_batches_of_a_validation"],
    TellsHalfAValidation: ["leaves_between_two_batches_of_a_validation"],
    PassesOverErrors: ["errors_of_the_trial_are_raised[training]"],
    PassesOverErrorsOfValidation: ["errors_of_the_trial_are_raised[validation]"],
    HidesTheBatch: ["errors_come_with_the_batch"],
    LeavesAThread: ["nothing_runs_on[failed]"],
    ForgetsTheGenerator: ["resumed_is_as_if_undisturbed[once]"],
    ForgetsTheMomentum: ["resumed_is_as_if_undisturbed[once]"],
    ForgetsWhatIsNotReported: ["resumed_is_as_if_undisturbed[after every batch]"],
    SkipsABatch: ["resumed_is_as_if_undisturbed[once]"],
    RepeatsTheEpoch: ["resumed_is_as_if_undisturbed[four times]"],
    RoundsWeights: ["resumed_is_as_if_undisturbed[once]"],
    RefersToItself: ["a_snapshot_stays_as_it_was_taken"],
    PassesOverFullDisks: ["a_failed_write_makes_no_checkpoint"],
    HidesFullDisks: ["a_full_disk_is_named[at once]"],
    PassesOverDamage: ["a_damaged_checkpoint_is_passed_over"],
    StartsCold: ["a_warm_start_takes_the_weights"],
    ContinuesTheOther: ["a_warm_start_takes_only_the_weights"],
    KeepsTheMomentum: ["a_warm_start_takes_only_the_weights"],
    KeepsTheGenerator: ["a_warm_start_takes_only_the_weights"],
    KeepsWhatIsNotReported: ["a_warm_start_takes_only_the_weights"],
    KeepsStateElsewhere: ["a_snapshot_stays_as_it_was_taken"],
    SaysNothing: ["metadata_tells_framework_and_format"],
    HidesItsName: ["metadata_tells_framework_and_format"],
    Pickles: ["loading_runs_no_code"],
    TrainsCopies: ["slots_divide_each_batch"],
    CombinesNothing: ["slots_divide_each_batch"],
    ValidatesApart: ["slots_divide_each_batch"],
    LoadsTheGeneratorOfTheChief: ["slots_resume_exactly"],
    IsHeavy: ["the_plugin_is_light"],
    ClaimsAll: ["the_plugin_claims_only_its_own_trials"],
    CannotBeShown: ["the_lines_that_load_a_checkpoint_are_python"],
    QuotesItsPathOnce: ["the_lines_that_load_a_checkpoint_are_python"],
    LosesItsStarter: ["the_starter_trains"],
}


LOADING = {
    "CannotBeShown": 'json.load(open "{path}")',
    "QuotesItsPathOnce": "json.load(open('{path}'))",
    "HidesItsName": 'json.load(open("{path}/descent.json"))',
}


@det_core.hookimpl
def det_frameworks() -> Iterator[FrameworkSpec]:
    for name in NAMES:
        loading = LOADING.get(name, "")
        starter = "det_descent:missing" if name == "LosesItsStarter" else ""
        yield FrameworkSpec(
            name=name,
            target=f"{__name__}:run_trial",
            loading=loading,
            starter=starter,
            needs_adapter=not (name == "TrainsCopies" or issubclass(globals()[name], SharesBatches)),
        )


@det_core.hookimpl
def det_choose_framework(mro: Sequence[str]) -> str:
    name = mro[0].rpartition(".")[2].removesuffix("Trial")
    return name if name in NAMES else "ClaimsAll"


def run_trial(trial_class: type[Line], core: Context) -> None:
    context = TrialContext.from_core(core)
    adapter = globals()[trial_class.__name__.removesuffix("Trial")]
    plan = TrainingPlan.of(core.config, core.searcher.ordered())
    if adapter is RehearsesNothing:
        plan = replace(plan, rehearsal=False)
    with suppress(CheckpointCorrupt) if adapter is PassesOverDamage else nullcontext():
        TrialLoop(adapter(trial_class(context)), core, context, plan=plan).run()


NAMES = [adapter.__name__ for adapter in (*CAUGHT_BY, SharesBatches)]
for _name in NAMES:
    globals()[f"{_name}Trial"] = type(f"{_name}Trial", (Line,), {"__module__": __name__})
