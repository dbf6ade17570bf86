"""Defaults, round trips and notices of experiment configs, and configs of old releases."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

import det_core.config
from det_core.config import ExperimentConfig, Length, Unit, is_command, load_config, parse_config
from det_core.config._core_blocks import ResourcesConfig
from det_core.errors import ConfigError
from det_core.metric_directions import missing_direction

HERE = Path(__file__).parent
GOOD: dict[str, Any] = {"searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 10}}}

KEPT = {"save_experiment_best": 0, "save_trial_best": 2, "save_trial_latest": 1}

DEFAULTS = json.loads((Path(det_core.config.__file__).parent / "defaults.json").read_text())
DEFAULTS["searcher"] |= GOOD["searcher"]
DEFAULTS["checkpoint_storage"] = None
"""Dump of a minimal config, except for the seed. ``tools/references.py`` writes the file."""


def test_a_minimal_config_has_all_defaults() -> None:
    before = int(time.time())
    dump = parse_config(GOOD).dump()
    assert before <= dump["reproducibility"]["experiment_seed"] <= time.time()
    assert dump == {**DEFAULTS, "reproducibility": dump["reproducibility"]}


@pytest.mark.parametrize("path", sorted((HERE / "examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_old_configs_are_accepted_and_survive_the_round_trip(path: Path) -> None:
    config = load_config(path)
    assert parse_config(json.loads(json.dumps(config.dump()))) == config
    assert parse_config(json.dumps(config.dump())).dump() == config.dump()


def test_different_configs_are_not_equal() -> None:
    assert parse_config({**GOOD, "name": "a"}) != parse_config({**GOOD, "name": "b"})
    assert parse_config(GOOD) != GOOD


def test_null_means_not_given() -> None:
    config = parse_config(
        {**GOOD, **dict.fromkeys(DEFAULTS.keys() - GOOD.keys()), "resources": {"slots_per_trial": None}}
    )
    assert config.dump() == {**DEFAULTS, "reproducibility": config.dump()["reproducibility"]}


def test_a_current_config_has_no_notices() -> None:
    assert parse_config(GOOD).notices == ()


@pytest.mark.parametrize(
    ("searcher", "notices"),
    [
        ({"metric": "val_accuracy"}, [missing_direction("val_accuracy")]),
        ({"metric": "val_accuracy", "smaller_is_better": None}, [missing_direction("val_accuracy")]),
        ({"metric": "val_accuracy", "smaller_is_better": True}, []),
        ({"metric": "val_accuracy", "smaller_is_better": False}, []),
        ({"metric": "capacity"}, []),
    ],
)
def test_a_missing_direction_is_named_and_not_changed(searcher: dict[str, Any], notices: list[str]) -> None:
    config = parse_config({**GOOD, "searcher": {"name": "single", "max_length": {"batches": 1}, **searcher}})
    assert list(config.notices) == notices
    assert config.searcher.smaller_is_better is (searcher.get("smaller_is_better") is not False)
    assert parse_config(config.dump()).notices == ()


def test_numbers_in_quotes_are_named() -> None:
    hyperparameters = {
        "lr": "1e-3",
        "sizes": {"type": "categorical", "vals": ["8", 16, "relu", "1e", "-.5"]},
        "optimizer": {"name": "adam", "decay": {"type": "const", "val": "0.1"}, "version": "1.2.3", "ids": ["1"]},
    }
    named = [notice.partition(";")[0] for notice in parse_config({**GOOD, "hyperparameters": hyperparameters}).notices]
    assert named == [
        "hyperparameters.lr is the text '1e-3'",
        "hyperparameters.sizes is the text '8'",
        "hyperparameters.sizes is the text '-.5'",
        "hyperparameters.optimizer.decay is the text '0.1'",
    ]


def test_one_notice_lists_all_ignored_keys() -> None:
    [notice] = load_config(HERE / "examples" / "release_0_30.yaml").notices
    ignored = notice.partition("are ignored: ")[2].split(", ")
    assert ignored == [
        "resources.weight",
        "resources.resource_pool",
        "resources.shm_size",
        "resources.devices",
        "resources.agent_label",
        "resources.is_single_node",
        "environment.image",
        "environment.force_pull_image",
        "environment.registry_auth",
        "environment.ports",
        "environment.proxy_ports",
        "environment.add_capabilities",
        "environment.drop_capabilities",
        "environment.pod_spec",
        "optimizations.grad_updates_size_file",
        "profiling.begin_on_batch",
        "profiling.end_after_batch",
        "profiling.sync_timings",
        "bind_mounts",
        "integrations",
        "log_policies",
        "pbs",
        "retention_policy",
        "security",
        "slurm",
        "tensorboard_storage",
    ]


def test_release_0_12_counts_in_steps() -> None:
    config = load_config(HERE / "examples" / "release_0_12.yaml")
    assert config.scheduling_unit == 64
    assert config.min_validation_period == Length(128, Unit.BATCHES)
    assert config.min_checkpoint_period == Length(320, Unit.BATCHES)
    assert config.dump()["searcher"]["max_length"] == {"batches": 640}
    rewritten, ignored = config.notices
    assert rewritten == (
        "this config counts in steps, as in release 0.12: read as 64 batches per step, "
        "searcher.max_steps became max_length"
    )
    assert ignored.endswith("ignored: resources.native_parallel, environment.image, bind_mounts")


def test_steps_have_100_batches_by_default() -> None:
    config = parse_config({"searcher": {"name": "single", "metric": "a", "max_steps": 3}, "min_validation_period": 1})
    assert config.dump()["searcher"]["max_length"] == {"batches": 300}
    assert config.min_validation_period == Length(100, Unit.BATCHES)


def test_release_0_19_may_omit_the_unit() -> None:
    config = load_config(HERE / "examples" / "release_0_19.yaml")
    assert config.dump()["searcher"]["max_length"] == 5000
    assert config.min_validation_period == Length(500)
    assert len(config.notices) == 1


# Text after the searcher on line 1; line and path of the problem.
LEGACY_MISTAKES = [
    ("batches_per_step: 0", 2, "scheduling_unit"),
    ("batches_per_step: many", 2, "scheduling_unit"),
    ("batches_per_step: 10\nscheduling_unit: 10", 2, "batches_per_step"),
    ("batches_per_step: 10\nmin_validation_period: x", 3, "min_validation_period"),
]


@pytest.mark.parametrize(("text", "line", "path"), LEGACY_MISTAKES)
def test_mistakes_in_a_config_of_release_0_12_are_found(text: str, line: int, path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(f"searcher: {{name: single, metric: a, max_steps: 3}}\n{text}")
    assert [(problem.line, problem.path) for problem in caught.value.problems] == [(line, path)]


def test_a_renamed_key_keeps_its_line() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config("searcher:\n  name: single\n  metric: a\n  max_steps: -1\n")
    assert [(problem.line, problem.path) for problem in caught.value.problems] == [(4, "searcher.max_length")]


def test_a_rewritten_key_does_not_replace_another() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config("searcher: {name: single, metric: a, max_steps: 1, max_length: 3}")
    assert [problem.path for problem in caught.value.problems] == ["searcher.max_steps"]


def test_environment_variables_depend_on_the_device() -> None:
    listed = parse_config({**GOOD, "environment": {"environment_variables": ["A=1", "B=x=y"]}}).environment
    assert listed.environment_variables.for_device("cuda") == {"A": "1", "B": "x=y"}
    old = parse_config({**GOOD, "environment": {"environment_variables": {"cpu": ["A=1"], "gpu": ["A=2"]}}}).environment
    assert old.environment_variables.for_device("cpu") == {"A": "1"}
    assert old.environment_variables.for_device("cuda") == {"A": "2"}


ENTRYPOINTS = [
    (None, False),
    ("model_def:MNistTrial", False),
    ("pkg.mod:Outer.Trial", False),
    ("python3 train.py", True),
    ("python3 -m determined.launch.torch_distributed model_def:Trial", True),
    (("python3", "train.py"), True),
    (("model_def:Trial",), True),
]


@pytest.mark.parametrize(("entrypoint", "command"), ENTRYPOINTS)
def test_commands_are_recognized(entrypoint: str | tuple[str, ...] | None, command: bool) -> None:
    assert is_command(entrypoint) is command


@pytest.mark.parametrize("entrypoint", ["python3 train.py", ["python3", "train.py"]])
def test_a_command_may_omit_max_length(entrypoint: Any) -> None:
    searcher = {"name": "single", "metric": "loss"}
    block = parse_config({"entrypoint": entrypoint, "searcher": searcher}).searcher
    assert (block.max_length, block.unit) == (None, None)
    for other in ({}, {"entrypoint": "model_def:Trial"}):
        with pytest.raises(ConfigError, match=r"searcher\.max_length: a required key is missing"):
            parse_config({**other, "searcher": searcher})


def test_the_unit_is_that_of_max_length() -> None:
    assert parse_config(GOOD).searcher.unit is Unit.BATCHES
    assert parse_config({"searcher": {**GOOD["searcher"], "max_length": 5}}).searcher.unit is None


def test_a_config_is_immutable() -> None:
    config: Any = parse_config(GOOD)
    with pytest.raises(ValueError, match="frozen"):
        config.name = "x"
    assert isinstance(config, ExperimentConfig)


@pytest.mark.parametrize("given", [{"save_trial_best": 2}, KEPT], ids=["some", "all"])
def test_checkpoint_storage_without_a_type_is_the_default_storage(det_home: Path, given: dict[str, int]) -> None:
    config = parse_config({**GOOD, "checkpoint_storage": given})
    place = {"type": "directory", "container_path": str(det_home / "checkpoints")}
    assert config.dump()["checkpoint_storage"] == {**place, **KEPT}
    with pytest.raises(ConfigError, match=r"checkpoint_storage.type: a required key is missing"):
        parse_config({**GOOD, "checkpoint_storage": {"save_trial_best": 2, "bucket": "b"}})


ELASTIC: dict[str, Any] = {
    **GOOD,
    "entrypoint": "model_def:T",
    "hyperparameters": {"global_batch_size": 32},
    "resources": {"slots_per_trial": 4, "min_slots_per_trial": 1},
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"entrypoint": "python3 train.py"}, "expected a trial class as the entrypoint"),
        ({"hyperparameters": {}}, "expected the hyperparameter global_batch_size"),
        ({"hyperparameters": {"global_batch_size": 32.0}}, "expected the hyperparameter global_batch_size"),
        (
            {"hyperparameters": {"global_batch_size": {"type": "int", "minval": 8, "maxval": 64}}},
            "expected the hyperparameter global_batch_size",
        ),
        (
            {"hyperparameters": {"global_batch_size": {"type": "categorical", "vals": [32, 30]}}},
            "a multiple of slots_per_trial, which is 4; got 30",
        ),
        (
            {"resources": {"slots_per_trial": 4, "min_slots_per_trial": 8}},
            "got 8; expected at most slots_per_trial, which is 4",
        ),
        (
            {"resources": {"slots_per_trial": 4, "min_slots_per_trial": 3}},
            "no number of slots >= 3 and < 4 divides global_batch_size 32",
        ),
        ({"resources": {"slots_per_trial": 1, "min_slots_per_trial": 1}}, "the number could never change"),
    ],
)
def test_an_elastic_trial_that_could_not_change_is_refused(changes: dict[str, Any], message: str) -> None:
    assert parse_config(ELASTIC).resources.min_slots_per_trial == 1
    with pytest.raises(ConfigError, match=f"resources.min_slots_per_trial: .*{message}"):
        parse_config({**ELASTIC, **changes})


@pytest.mark.parametrize(
    ("resources", "batch_size", "counts"),
    [
        ({"slots_per_trial": 4, "min_slots_per_trial": 1}, 32, (4, 2, 1)),
        ({"slots_per_trial": 4, "min_slots_per_trial": 2}, 12, (4, 3, 2)),
        ({"slots_per_trial": 8, "min_slots_per_trial": 3}, 32, (8, 4)),
        ({"slots_per_trial": 4, "min_slots_per_trial": 1}, 30, (4,)),
        ({"slots_per_trial": 4, "min_slots_per_trial": 1}, None, (4,)),
        ({"slots_per_trial": 4}, 32, (4,)),
        ({"slots_per_trial": 0}, 32, (1,)),
    ],
)
def test_numbers_of_slots_divide_the_batch_size(
    resources: dict[str, int], batch_size: int | None, counts: tuple[int, ...]
) -> None:
    assert ResourcesConfig(**resources).slot_counts(batch_size) == counts
