"""Values of a config that are given on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_core.config import load_config, parse_config
from det_core.errors import ConfigError

TEXT = """
searcher:
  name: single
  metric: loss
  max_steps: 3
hyperparameters: {lr: 0.1}
resources:
bind_mounts: []
"""


def test_values_are_set_before_the_config_is_read(tmp_path: Path) -> None:
    path = tmp_path / "const.yaml"
    path.write_text(TEXT)
    config = load_config(path, ["launcher.slots=2", "searcher.max_steps=5", "resources.slots_per_trial=2", "name=a=b"])
    assert config.launcher.options.model_dump() == {"slots": 2, "prepare": ()}
    assert (config.dump()["searcher"]["max_length"], config.resources.slots_per_trial) == ({"batches": 500}, 2)
    assert config.name == "a=b"


def test_the_yaml_text_determines_the_type() -> None:
    changes = ["hyperparameters={lr: {type: log, base: 10, minval: -3, maxval: -1}}", "labels=[a, b]"]
    config = parse_config(TEXT.replace("max_steps: 3", "max_length: {batches: 3}"), changes=changes)
    assert set(config.hyperparameters) == {"lr"}
    assert config.labels == ("a", "b")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("launcher.slots", "--config launcher.slots: expected KEY=VALUE, where the value is YAML"),
        (".slots=2", "expected KEY=VALUE"),
        ("bind_mounts.host_path=/a", "bind_mounts is no mapping, so it has no keys; set it as a whole"),
        ("name={", "--config name={"),
        ("searcher.metrc=loss", "const.yaml:2: searcher.metrc: unknown key; did you mean 'metric'?"),
        ("launcher.slots=two", 'launcher.slots: got "two"; expected a whole number'),
    ],
)
def test_wrong_changes_are_rejected(change: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_config(TEXT, filename="const.yaml", changes=[change])


@pytest.mark.parametrize("change", ["checkpoint_storage.secret_key={hunter2", "checkpoint_storage.secret_key.a=1"])
def test_wrong_changes_do_not_repeat_secrets(change: str) -> None:
    with pytest.raises(ConfigError, match="--config checkpoint_storage.secret_key") as rejected:
        parse_config(f"{TEXT}\ncheckpoint_storage: {{type: s3, secret_key: hunter2}}\n", changes=[change])
    assert "hunter2" not in str(rejected.value)
