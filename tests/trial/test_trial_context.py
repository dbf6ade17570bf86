"""Methods of TrialContext without a runner."""

from __future__ import annotations

from typing import Any

import pytest

from det_core import TrialContext
from det_core.config import parse_config
from det_core.errors import ConfigError, InvalidExperimentException


def context(**config: Any) -> TrialContext:
    return TrialContext.from_config(config)


def test_from_config_samples_hyperparameters_and_keeps_the_rest() -> None:
    made = context(
        hyperparameters={"lr": {"type": "double", "minval": 1, "maxval": 2}, "net": {"depth": 3}},
        data={"path": "/data"},
        reproducibility={"experiment_seed": 5},
        resources={"slots_per_trial": 8},
        checkpoint_storage={"type": "no such store"},
    )
    assert 1 <= made.get_hparam("lr") <= 2
    assert made.get_hparams()["net"] == {"depth": 3}
    assert made.get_data_config() == {"path": "/data"}
    assert made.get_experiment_config()["reproducibility"]["experiment_seed"] == made.get_trial_seed() == 5
    assert (made.get_experiment_id(), made.get_trial_id()) == (0, 0)
    ranks = made.distributed
    assert (ranks.get_rank(), ranks.get_local_rank(), ranks.get_size(), ranks.get_num_agents()) == (0, 0, 1, 1)
    assert (ranks.allgather(3), ranks.gather(3), ranks.broadcast(3), ranks.allgather_local(3)) == ([3], [3], 3, [3])


def test_from_config_reports_a_bad_config() -> None:
    with pytest.raises(ConfigError, match="did you mean 'hyperparameters'"):
        context(hyperparameter={})


def test_the_error_of_an_unknown_hyperparameter_lists_the_existing_ones() -> None:
    with pytest.raises(ValueError, match=r"no hyperparameter 'lr'.*are: 'depth', 'width'"):
        context(hyperparameters={"width": 1, "depth": 2}).get_hparam("lr")


def test_one_slot_has_equal_global_and_per_slot_batch_sizes() -> None:
    made = context(hyperparameters={"global_batch_size": 32})
    assert (made.get_global_batch_size(), made.get_per_slot_batch_size()) == (32, 32)
    with pytest.warns(UserWarning, match="get_per_slot_batch_size"):
        assert made.get_hparam("global_batch_size") == 32


@pytest.mark.parametrize("size", [None, 0, 2.5, "32", True])
def test_a_bad_batch_size_is_an_error(size: Any) -> None:
    made = context(hyperparameters={} if size is None else {"global_batch_size": size})
    with pytest.raises(InvalidExperimentException, match="expected an integer of at least 1"):
        made.get_per_slot_batch_size()


def test_a_stop_request_must_be_a_bool() -> None:
    made = context()
    assert not made.get_stop_requested()
    made.set_stop_requested(True)
    assert made.get_stop_requested()
    with pytest.raises(AssertionError, match="must be True or False, not 'yes'"):
        made.set_stop_requested("yes")  # type: ignore[arg-type]


def test_code_in_old_checkpoints_finds_its_environment() -> None:
    made = context(hyperparameters={"lr": 0.5}, reproducibility={"experiment_seed": 5})
    made.env.container_gpus = []
    assert (made.env.hparams, made.env.trial_seed, made.env.managed_training) == ({"lr": 0.5}, 5, False)
    assert made.env.experiment_config["hyperparameters"] == made.get_experiment_config()["hyperparameters"]
    with pytest.raises(AttributeError, match=r"no attribute 'use_gpu'; it has .*hparams.*get_hparams\(\)"):
        _ = made.env.use_gpu


def test_the_config_of_the_environment_has_its_old_methods() -> None:
    parsed = parse_config(
        {
            "entrypoint": "model_def:Trial",
            "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 9}},
            "reproducibility": {"experiment_seed": 5},
            "resources": {"slots_per_trial": 4, "native_parallel": True},
            "optimizations": {"aggregation_frequency": 2, "average_training_metrics": False},
            "min_validation_period": {"batches": 3},
            "min_checkpoint_period": {"epochs": 1},
            "records_per_epoch": 60,
            "checkpoint_storage": {"type": "shared_fs", "host_path": "/ckpts"},
            "profiling": {"enabled": True},
            "debug": True,
        }
    )
    ids = {"trial_id": 1, "experiment_id": 1, "trial_seed": 0}
    config = TrialContext(config=parsed, hparams={}, **ids, distributed=context().distributed).env.experiment_config
    assert (config.slots_per_trial(), config.experiment_seed(), config.scheduling_unit()) == (4, 5, 100)
    assert config.get_optimizations_config()["aggregation_frequency"] == 2
    assert (config.get_min_validation_period(), config.get_min_checkpoint_period()) == ({"batches": 3}, {"epochs": 1})
    assert (config.get_records_per_epoch(), config.get_searcher_metric()) == (60, "loss")
    assert config.get_entrypoint() == config["entrypoint"] == "model_def:Trial"
    assert config.get_checkpoint_storage()["host_path"] == "/ckpts"
    assert config.profiling_enabled()
    assert config.native_parallel_enabled()
    assert config.debug_enabled()
    assert not config.average_training_metrics_enabled()
    bare = context().env.experiment_config
    assert (bare.get_records_per_epoch(), bare.get_checkpoint_storage()) == (None, {})
