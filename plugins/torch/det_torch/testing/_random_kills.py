"""Tests that kill slots at random."""

from __future__ import annotations

import random
from typing import Any

import pytest
from det_testing import campaign_seeds
from det_testing.trial_job import BATCHES, InjectedFailure

from det_torch.testing._suite import AdapterSuite
from det_torch.testing.jobs import ADVERSARIES, ONE_MODEL, Jobs

SEEDS = campaign_seeds(few=1, many=50)


def draw_scenario(seed: int) -> tuple[str, dict[str, Any], list[InjectedFailure]]:
    """Return the name of a trial, keys of its config, and the failures that kill its slots."""
    chance = random.Random(seed)  # noqa: S311
    batches = sorted(chance.sample(range(1, BATCHES), chance.randint(1, 2)))
    kills = [InjectedFailure("kill", chance.randrange(2), at) for at in batches]
    keys = {
        "data": {
            "kind": chance.choice(["table", "augmented", "stream"]),
            "workers": chance.choice([0, 2]),
            "dropout": chance.choice([0.0, 0.3]),
        },
        "optimizations": {"aggregation_frequency": chance.choice([1, 2, 3])},
        "min_checkpoint_period": {"batches": chance.choice([1, 2, 3, 5])},
        "scheduling_unit": chance.choice([1, 4, 7]),
    }
    return (ONE_MODEL, ADVERSARIES)[seed % 2], keys, kills


class RandomKillsSuite(AdapterSuite):
    """Tests that killed and resumed training has the same result as undisturbed training."""

    @pytest.mark.integration
    @pytest.mark.slow
    @pytest.mark.campaign
    @pytest.mark.parametrize("seed", SEEDS)
    def test_random_kills(self, jobs: Jobs, seed: int) -> None:
        trial, keys, kills = draw_scenario(seed)
        undisturbed, killed = (jobs.make(trial, **keys) for _ in range(2))
        undisturbed.start(2)
        for kill in kills:
            assert killed.run(2, kill) != 0, killed.output()
        killed.start(2).ended()
        self.assert_same(killed, undisturbed.ended())
