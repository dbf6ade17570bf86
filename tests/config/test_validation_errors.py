"""Problems of wrong configs, with their lines, paths and messages."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel, Field, ValidationError

from det_core.config import explain_block, load_config, parse_config
from det_core.errors import ConfigError, Problem
from det_core.package_commands import package_command

GOOD = "searcher: {name: single, metric: loss, max_length: 10}\n"


def problems(text: str) -> tuple[Problem, ...]:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, filename="const.yaml")
    assert str(caught.value).startswith("const.yaml")
    return caught.value.problems


# Text after a valid searcher on line 1; line and path of the problem, and words of its message.
WRONG = [
    ("max_restart: 3", 2, "max_restart", "unknown key; did you mean 'max_restarts'?"),
    ("zzz: 3", 2, "zzz", "unknown key; expected one of: bind_mounts"),
    ("resources:\n  slot_per_trial: 2", 3, "resources.slot_per_trial", "did you mean 'slots_per_trial'?"),
    ("max_restarts: many", 2, "max_restarts", 'got "many"; expected a whole number'),
    ('max_restarts: "5"', 2, "max_restarts", 'got "5"; expected a whole number'),
    ("max_restarts: true", 2, "max_restarts", "got true; expected a whole number"),
    ("max_restarts: -1", 2, "max_restarts", "got -1; expected 0 or more"),
    ("scheduling_unit: 0", 2, "scheduling_unit", "got 0; expected 1 or more"),
    ("records_per_epoch: -1", 2, "records_per_epoch", "expected 0 or more"),
    ("debug: maybe", 2, "debug", 'got "maybe"; expected true or false'),
    ("name: 5", 2, "name", "got 5; expected text; put it in quotes"),
    ("labels: red", 2, "labels", 'got "red"; expected a list'),
    ("data: 5", 2, "data", "got 5; expected a mapping"),
    ("resources: [1]", 2, "resources", "got a list; expected a mapping"),
    ("checkpoint_policy: worst", 2, "checkpoint_policy", "expected 'best', 'all' or 'none'"),
    ("resources: {slots_per_trial: -1}", 2, "resources.slots_per_trial", "expected 0 or more"),
    ("resources: {priority: 100}", 2, "resources.priority", "expected 99 or less"),
    ("optimizations:\n  aggregation_frequency: 0", 3, "optimizations.aggregation_frequency", "expected 1 or more"),
    ("optimizations: {mixed_precision: O9}", 2, "optimizations.mixed_precision", "expected 'O0', 'O1', 'O2' or 'O3'"),
    ("reproducibility: {experiment_seed: 4294967296}", 2, "reproducibility.experiment_seed", "4294967295 or less"),
    ("profiling: {begin_on_batch: 5, end_after_batch: 3}", 2, "profiling.end_after_batch", "which is 5"),
    ("retention_policy: {log_retention_days: -2}", 2, "retention_policy.log_retention_days", "expected -1 or more"),
    ("bind_mounts:\n  - host_path: /a", 3, "bind_mounts[0].container_path", "missing; add `container_path: ...`"),
    ("entrypoint: []", 2, "entrypoint", "expected a trial class `module:Class` or a command"),
    ("entrypoint: [python, 3]", 2, "entrypoint[1]", "got 3; expected text"),
    ("min_validation_period: {batch: 3}", 2, "min_validation_period", "expected a length >= 0 such as `batches: 100`"),
    (
        "min_validation_period: {batches: 3, epochs: 1}",
        2,
        "min_validation_period",
        "expected one unit, not batches and epochs",
    ),
    ("min_validation_period: {batches: -3}", 2, "min_validation_period", "expected a length >= 0"),
    ("min_checkpoint_period: soon", 2, "min_checkpoint_period", 'got "soon"; expected a length >= 0'),
    ("hyperparameters: [1]", 2, "hyperparameters", "got a list; expected a mapping"),
    (
        "hyperparameters:\n  lr:\n    type: double\n    minval: 2\n    maxval: 1",
        6,
        "hyperparameters.lr.maxval",
        "got 1; expected maxval >= minval, which is 2",
    ),
    ("hyperparameters:\n  a:\n    b: {type: int, minval: 1.5, maxval: 2}", 4, "hyperparameters.a.b.minval", "got 1.5"),
    ("hyperparameters:\n  a: {type: int, minval: 1}", 3, "hyperparameters.a.maxval", "missing; add `maxval: ...`"),
    ("hyperparameters: {a: {type: double, minval: .nan, maxval: 1}}", 2, "hyperparameters.a.minval", "finite number"),
    ("hyperparameters: {a: {type: integer, minval: 1}}", 2, "hyperparameters.a.type", 'got "integer"; expected one of'),
    ("hyperparameters: {a: {type: categorical, vals: []}}", 2, "hyperparameters.a.vals", "1 item or more"),
    ("hyperparameters: {a: {type: int, minval: 1, maxval: 2, count: 0}}", 2, "hyperparameters.a.count", "1 or more"),
    ("hyperparameters: {a: {type: log, base: 0, minval: 1, maxval: 2}}", 2, "hyperparameters.a.base", "more than 0"),
    ("hyperparameters: {a: {type: log, base: 10, minval: 1, maxval: 999}}", 2, "hyperparameters.a.base", "exponents"),
    ("environment: {environment_variables: [A]}", 2, "environment.environment_variables[0]", "expected KEY=VALUE"),
    ("environment: {image: 5}", 2, "environment.image", "expected text; put it in quotes; or expected a mapping"),
    # Problems that the models of plugins find.
    ("checkpoint_storage: {container_path: /x}", 2, "checkpoint_storage.type", "a required key is missing"),
    (
        "checkpoint_storage:\n  type: s3\n  bucket: b",
        3,
        "checkpoint_storage.type",
        package_command("install", "det-storage-s3"),
    ),
    ("checkpoint_storage: {type: directry}", 2, "checkpoint_storage.type", "did you mean 'directory'?"),
    ("checkpoint_storage:\n  type: directory", 2, "checkpoint_storage.container_path", "a required key is missing"),
    (
        "checkpoint_storage:\n  type: directory\n  container_pth: /x\n  container_path: /y",
        4,
        "checkpoint_storage.container_pth",
        "expected one of: save_experiment_best, save_trial_best, save_trial_latest (already set: container_path, type)",
    ),
    (
        "checkpoint_storage: {type: directory, container_path: /x, save_trial_bst: 1}",
        2,
        "checkpoint_storage.save_trial_bst",
        "did you mean 'save_trial_best'?",
    ),
    (
        "checkpoint_storage: {type: directory, container_path: 5}",
        2,
        "checkpoint_storage.container_path",
        "got 5; expected a path; put it in quotes",
    ),
    ("launcher: {slots: -1}", 2, "launcher.slots", "got -1"),
    ("checkpoint_storage: {type: hdfs}", 2, "checkpoint_storage.type", "mount it on all hosts and set type: shared_fs"),
    ("launcher: {type: slurm}", 2, "launcher.type", package_command("install", "det-slurm")),
    ("distributed: {backend: horovod}", 2, "distributed.backend", package_command("install", "det-horovod")),
    ("distributed: {timeout: 0}", 2, "distributed.timeout", "expected more than 0"),
    ("distributed: {sharding: 3}", 2, "distributed.sharding", "unknown key; expected one of: backend, timeout"),
]


@pytest.mark.usefixtures("only_det_core")
@pytest.mark.parametrize(("text", "line", "path", "words"), WRONG, ids=[f"{w[2]}: {w[3]}" for w in WRONG])
def test_a_problem_has_its_line_and_path(text: str, line: int, path: str, words: str) -> None:
    [problem] = problems(GOOD + text)
    assert (problem.file, problem.line, problem.path) == ("const.yaml", line, path)
    assert words in problem.message
    assert str(problem) == f"const.yaml:{line}: {path}: {problem.message}"


@pytest.mark.parametrize("number", [".inf", "-.inf", ".nan", "1e400"])
@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("hyperparameters: {{lr: {}}}", "hyperparameters.lr"),
        ("hyperparameters: {{lr: {{type: const, val: {}}}}}", "hyperparameters.lr.val"),
        ("hyperparameters: {{lr: {{type: categorical, vals: [1, {}]}}}}", "hyperparameters.lr.vals[1]"),
        ("data: {{a: [{{b: {}}}]}}", "data.a[0].b"),
        ("distributed: {{timeout: {}}}", "distributed.timeout"),
    ],
)
def test_numbers_that_json_cannot_represent_are_rejected(text: str, path: str, number: str) -> None:
    """Infinity and NaN would otherwise become null in the recorded config."""
    [problem] = problems(GOOD + text.format(number))
    assert (problem.line, problem.path) == (2, path)
    assert "finite number" in problem.message


def test_infinite_numbers_of_a_mapping_are_rejected() -> None:
    config = {"searcher": {"name": "single", "metric": "a", "max_length": 1}, "data": {"clip": float("inf")}}
    with pytest.raises(ConfigError, match="data.clip: expected a finite number, got inf"):
        parse_config(config)


SEARCHERS = [
    ("name: x", 1, "searcher", "a required key is missing"),
    ("searcher: single", 1, "searcher", "expected a mapping"),
    ("searcher:\n  name: single\n  max_length: 3", 1, "searcher.metric", "a required key is missing"),
    ("searcher:\n  name: single\n  metric: loss", 1, "searcher.max_length", "a required key is missing"),
    ("searcher:\n  name: singel\n  metric: loss", 2, "searcher.name", "did you mean 'single'?"),
    ("searcher: {name: single, metric: loss, max_length: {epoch: 3}}", 1, "searcher.max_length", "expected a length"),
    ("searcher: {name: single, metric: loss, max_length: 0}", 1, "searcher.max_length", "expected a length > 0"),
]


@pytest.mark.parametrize(("text", "line", "path", "words"), SEARCHERS)
def test_a_problem_of_the_searcher_has_its_line_and_path(text: str, line: int, path: str, words: str) -> None:
    [problem] = problems(text)
    assert (problem.line, problem.path) == (line, path)
    assert words in problem.message


def test_all_problems_are_reported_in_the_order_of_the_file() -> None:
    searcher = "searcher:\n  name: single\n  metrc: a\n  max_length: x\n"
    text = f"max_restart: 1\n{searcher}name: a\nname: b\nlauncher: {{slot: 1}}\n"
    assert [(problem.line, problem.path) for problem in problems(text)] == [
        (1, "max_restart"),
        (2, "searcher.metric"),
        (4, "searcher.metrc"),
        (5, "searcher.max_length"),
        (7, "name"),
        (8, "launcher.slot"),
    ]


@pytest.mark.integration
def test_errors_after_the_first_hundred_become_one_problem() -> None:
    """Explaining each of many would take minutes."""
    variables = [f"hunter{number}" for number in range(50_000)]
    config = {
        "searcher": {"name": "single", "metric": "loss", "max_length": 1},
        "environment": {"environment_variables": variables},
        "data": {"numbers": [float("nan")] * 1000},
    }
    with pytest.raises(ConfigError, match="there are further problems; correct the others first") as caught:
        parse_config(config)
    assert len(caught.value.problems) == 201
    assert "hunter" not in str(caught.value)


def test_common_keys_are_suggested_in_a_block_of_a_plugin() -> None:
    found = {problem.path: problem.message for problem in problems("searcher: {name: single, metrc: a, max_length: 1}")}
    assert found["searcher.metrc"] == "unknown key; did you mean 'metric'?"


# An option of a plugin, and the config's field for all of its options, have the same name.
CUSTOM = "searcher:\n  name: custom\n  metric: loss\n  method: {}\n  options: {{method: 1, unit: 2}}\n  {}: batches\n"


@pytest.mark.parametrize(
    ("method", "key", "found"),
    [
        ("m:C", "option", (6, "searcher.option", "unknown key; expected one of: smaller_is_better")),
        ("m:C", "uni", (6, "searcher.uni", "unknown key; did you mean 'unit'?")),
        ("nothing", "unit", (4, "searcher.method", 'got "nothing"')),
    ],
)
def test_an_option_may_be_called_options(method: str, key: str, found: tuple[int, str, str]) -> None:
    [problem] = problems(CUSTOM.format(method, key))
    assert (problem.line, problem.path) == found[:2] and problem.message.startswith(found[2])


@pytest.mark.parametrize(
    "text",
    [
        "checkpoint_storage: {type: directory, container_path: /x, secret_key: hunter2}",
        "environment: {environment_variables: [hunter2]}",
        "environment: {environment_variables: [{TOKEN: hunter2}]}",
        "environment: {registry_auth: hunter2}",
        "hyperparameters: {access_key: {type: int, minval: hunter2, maxval: 3}}",
        "min_validation_period: {password: hunter2}",
        "access_key: hunter2\nbad: [",
        "debug: https://ada:hunter2@example.com",
        "debug: 'https://example.com/x?sig=hunter2'",
        "debug: 'https://example.com/x#hunter2'",
        "debug: AccountName=ada;AccountKey=hunter2",
    ],
)
def test_secrets_are_not_repeated(text: str) -> None:
    assert all("hunter2" not in str(problem) for problem in problems(GOOD + text))


def test_long_values_are_cut() -> None:
    [problem] = problems(GOOD + f"debug: {'x' * 1000}")
    assert len(problem.message) < 150


def test_a_problem_of_a_mapping_has_a_path_but_no_line() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config({"searcher": {"name": "single", "metric": "loss", "max_length": 1}, "nam": 1})
    assert str(caught.value) == "<config>: nam: unknown key; did you mean 'name'?"


def test_values_that_json_cannot_represent_are_rejected() -> None:
    with pytest.raises(ConfigError, match="expected plain values"):
        parse_config({"data": {"x": object()}})


def test_a_mapping_is_no_larger_than_a_file() -> None:
    with pytest.raises(ConfigError, match="more than 1048576 characters as JSON; put data into files"):
        parse_config({"entrypoint": "a:B", "data": {"x": [0] * 600_000}})


def test_load_config_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "const.yaml"
    path.write_text(GOOD + "nam: 1\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert caught.value.problems == (Problem(str(path), 2, "nam", "unknown key; did you mean 'name'?"),)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", 'got ""; expected text with 1 character or more'),
        ("abcd", 'got "abcd"; expected text with 3 characters or fewer'),
        ("b", 'got "b"; expected text that matches ^a'),
    ],
)
def test_a_problem_of_a_text_says_what_is_expected(name: str, expected: str) -> None:
    class Block(BaseModel):
        name: str = Field(min_length=1, max_length=3, pattern="^a")

    with pytest.raises(ValidationError) as refused:
        Block(name=name)
    assert explain_block(refused.value, "block", {"name": name}) == f"block: name: {expected}"
