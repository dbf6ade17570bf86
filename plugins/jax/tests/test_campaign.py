"""Trials that are killed at random, up to three times, end bitwise like undisturbed ones."""

from __future__ import annotations

import random
import signal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flax", reason="JAX is in an environment of its own, with which make more-jax runs these tests")

from det_jax._state import read_checkpoint
from det_testing import campaign_seeds
from det_testing.framework.trial_harness import TrialHarness

from .tiny_trials import Functions, Objects, Streamed

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.campaign]

BATCHES = 17
TRIALS = (Functions, Objects, Streamed)


def read_everything(path: Path) -> Any:
    return list(read_checkpoint(path))


@pytest.mark.parametrize("seed", campaign_seeds(few=1, many=60))
def test_a_trial_killed_at_random_equals_an_undisturbed_one(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    kills = sorted(chance.sample(range(1, BATCHES), chance.randint(1, 3)))
    if chance.random() < 0.3:  # twice within one epoch
        kills = [kills[0], min(kills[0] + 1, BATCHES - 1)]
    trial_class = chance.choice(TRIALS)
    config = {
        "entrypoint": "tiny_trials:Trial",
        "searcher": {"name": "single", "metric": "validation_loss"},
        "hyperparameters": {"global_batch_size": 4},
        "resources": {"slots_per_trial": 0},
        "scheduling_unit": chance.choice([1, 4, 7]),
        "min_validation_period": {"batches": chance.choice([0, 5, 9])},
        "min_checkpoint_period": {"batches": chance.choice([1, 2, 3, 5])},
        "checkpoint_policy": chance.choice(["best", "all", "none"]),
    }
    harness = TrialHarness(tmp_path, "det_jax._run:run_trial", trial_class, config, read_everything)
    with harness.store:
        undisturbed, killed = (harness.prepare(length={"batches": BATCHES}) for _ in range(2))
        harness.train(undisturbed)
        for batch in kills:
            checkpoints = harness.checkpoints(killed)
            trained = checkpoints[-1].steps_completed if checkpoints else 0
            code, said = harness.train_elsewhere(killed, ("training", batch - trained, "die"))
            assert code == -signal.SIGKILL, said
        harness.train(killed)
        assert harness.outcome(killed) == harness.outcome(undisturbed), (trial_class, config, kills)
