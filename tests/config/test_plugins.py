"""Config blocks of third-party plugins, which are found when a config is read."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import importlib_metadata
import pytest

from det_core.cli import main
from det_core.config import config_schema, load_config, parse_config
from det_core.errors import ConfigError
from det_core.launch.launchers import open_launcher
from det_core.plugins import Registry

STRANGER = """
from pydantic import BaseModel, ConfigDict, Field, SecretStr
import det_core
from det_core.launch.local import LocalLauncher
from det_core.specs import BackendSpec, LauncherSpec, ObserverSpec, SearchMethodSpec, StorageSpec
from det_core.config import PositiveLength, Unit


class Pods(LocalLauncher):
    def __init__(self, config, claimed):
        self.claimed = claimed

class Inner(BaseModel):
    level: int = 1

class Gzip(BaseModel):
    base_path: str = Field(alias="base")
    '''Root of all ``.gz`` files, a
    :class:`pathlib.Path`.'''
    inner: Inner = Inner()
    note: str | None = None

class Open(BaseModel):
    model_config = ConfigDict(extra="allow")

class Nested(BaseModel):
    parts: dict[str, list[Open]] = {}

class Ring(BaseModel):
    tensor_fusion_threshold: int = 64

class Halton(BaseModel):
    max_length: PositiveLength

class Tracker(BaseModel):
    observer: str = "an option that is named like the kind"
    every: int = 1
    pin: SecretStr = SecretStr("")
class Steps(BaseModel):
    steps: int = 1

class Rounds(Steps):
    unit = property(lambda self: Unit.EPOCHS)


class Image(BaseModel):
    image: str = "python"
    pod_spec: dict[str, int] = {}
    registry_auth: dict[str, SecretStr] = {}
class Shm(BaseModel):
    shm_size: int = 0
class Claimed(BaseModel):
    environment: Image = Image()
    resources: Shm = Shm()
class TooMuch(BaseModel):
    resources: dict[str, int] = {}
    weight: int = 0


@det_core.hookimpl
def det_launchers():
    yield LauncherSpec(name="pods", target="det_stranger:Pods", claims="det_stranger:Claimed")
    yield LauncherSpec(name="greedy", target="x:y", claims="det_stranger:TooMuch")

@det_core.hookimpl
def det_storage():
    yield StorageSpec(name="gzip", target="x:y", config_model="det_stranger:Gzip")
    yield StorageSpec(name="open", target="x:y", config_model="det_stranger:Open")
    yield StorageSpec(name="nested", target="x:y", config_model="det_stranger:Nested")
    yield StorageSpec(name="broken", target="x:y", config_model="det_nowhere:Model", install="pip install nowhere")
    yield StorageSpec(name="twice", target="x:y")
    yield StorageSpec(name="twice", target="x:y")

@det_core.hookimpl
def det_backends():
    yield BackendSpec(name="ring", target="x:y", config_model="det_stranger:Ring")
    yield BackendSpec(name="plain", target="x:y")

@det_core.hookimpl
def det_search_methods():
    yield SearchMethodSpec(name="halton", target="x:y", config_model="det_stranger:Halton")
    yield SearchMethodSpec(name="steps", target="x:y", config_model="det_stranger:Steps")
    yield SearchMethodSpec(name="rounds", target="x:y", config_model="det_stranger:Rounds")
    yield SearchMethodSpec(name="bare", target="x:y")

@det_core.hookimpl
def det_observers():
    yield ObserverSpec(name="tracker", target="x:y", config_model="det_stranger:Tracker")
    yield ObserverSpec(name="plain", target="x:y")
"""

GOOD: dict[str, Any] = {"searcher": {"name": "halton", "metric": "loss", "max_length": 10}}


@pytest.fixture(autouse=True)
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a third-party distribution with plugins."""
    (tmp_path / "det_stranger.py").write_text(STRANGER)
    monkeypatch.syspath_prepend(tmp_path)
    modules = {"core": "det_core.plugins.builtin", "stranger": "det_stranger"}
    installed = Registry(importlib_metadata.EntryPoint(name, value, "det") for name, value in modules.items())
    for user in ("config._plugin_blocks", "config._json_schema", "config._claimed_keys", "launch.launchers"):
        monkeypatch.setattr(f"det_core.{user}.plugin_registry", lambda: installed)
    yield
    sys.modules.pop("det_stranger", None)


def problem(**blocks: Any) -> str:
    """Return the only problem of a config with these blocks."""
    with pytest.raises(ConfigError) as caught:
        parse_config({**GOOD, **blocks})
    [found] = caught.value.problems
    return str(found).removeprefix("<config>: ")


def test_the_model_of_the_plugin_validates_its_block() -> None:
    block = {"type": "gzip", "base": "/x", "inner": {"level": 9}, "save_trial_best": 3, "note": None}
    config = parse_config({**GOOD, "checkpoint_storage": block})
    storage = config.checkpoint_storage
    assert storage is not None
    assert (storage.type, storage.save_trial_best) == ("gzip", 3)
    options: Any = storage.options
    assert (type(options).__name__, options.base_path, options.inner.level) == ("Gzip", "/x", 9)


CONTAINER: dict[str, Any] = {
    "environment": {"image": "torch", "pod_spec": {"grace": 30}, "force_pull_image": True},
    "resources": {"shm_size": 4},
}


def test_a_launcher_gets_the_keys_that_it_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_HOME", "/nowhere")
    secret = {"environment": {**CONTAINER["environment"], "registry_auth": {"password": "pA55"}}}
    config = parse_config({**GOOD, **CONTAINER, **secret, "launcher": {"type": "pods"}})
    [notice] = (one for one in config.notices if "ignored" in one)
    assert notice == "these keys have no effect and are ignored: environment.force_pull_image"
    claimed: Any = open_launcher(config).claimed  # type: ignore[attr-defined]
    assert (claimed.environment.image, claimed.environment.pod_spec, claimed.resources.shm_size) == (
        "torch",
        {"grace": 30},
        4,
    )
    assert claimed.environment.registry_auth["password"].get_secret_value() == "pA55"
    assert parse_config(config.dump()) == config
    unset: Any = open_launcher(parse_config({**GOOD, "launcher": {"type": "pods"}})).claimed  # type: ignore[attr-defined]
    assert unset.environment.image == "python"


def test_a_key_that_the_launcher_does_not_claim_is_ignored() -> None:
    config = parse_config({**GOOD, "environment": {"pod_spec": {"grace": "long"}}})
    assert "these keys have no effect and are ignored: environment.pod_spec" in config.notices


# block, the problem
WRONG = [
    (
        {"launcher": {"type": "pods"}, "environment": {"pod_spec": {"grace": "long"}}},
        'environment.pod_spec.grace: got "long"; expected a valid integer, unable to parse string as an integer',
    ),
    (
        {"launcher": {"type": "greedy"}},
        "plugin stranger  (det_stranger): 'det_stranger:TooMuch' claims resources, weight; expected only keys that "
        "have no effect of their own, such as environment.image",
    ),
    ({"checkpoint_storage": {"type": "gzip"}}, "checkpoint_storage.base: a required key is missing; add `base: ...`"),
    (
        {"checkpoint_storage": {"type": "gzip", "base": "/x", "nte": "x"}},
        "checkpoint_storage.nte: unknown key; did you mean 'note'?",
    ),
    (
        {"checkpoint_storage": {"type": "gzip", "base": "/x", "inner": {"levl": 1}}},
        "checkpoint_storage.inner.levl: unknown key; remove it",
    ),
    (
        {"checkpoint_storage": {"type": "gzip", "base": "/x", "inner": {"level": "high"}}},
        'checkpoint_storage.inner.level: got "high"; expected a valid integer, unable to parse string as an integer',
    ),
    (
        {"searcher": {**GOOD["searcher"], "max_length": 0}},
        "searcher.max_length: got 0; expected a length > 0; write 1 or more",
    ),
    (
        {"distributed": {"backend": "plain", "x": 1}},
        "distributed.x: unknown key; expected one of: timeout (already set: backend)",
    ),
    (
        {"distributed": {"backend": "ring"}, "entrypoint": ["python", "x.py"]},
        "distributed.backend: expected no backend beside an entrypoint that is a command, because a command "
        "starts its own workers; remove the key, or name a trial class `module:Class` as the entrypoint",
    ),
    (
        {
            "distributed": {"backend": "ring", "tensor_fusion_threshold": 32},
            "optimizations": {"tensor_fusion_threshold": 16},
        },
        "distributed.tensor_fusion_threshold: it is also set as optimizations.tensor_fusion_threshold; "
        "remove one of them",
    ),
    ({"observers": {"tracker": {"evry": 1}}}, "observers.tracker.evry: unknown key; did you mean 'every'?"),
    (
        {"observers": {"tracker": {"every": 1, "zoom": 1}}},
        "observers.tracker.zoom: unknown key; expected one of: observer, pin (already set: every)",
    ),
    ({"observers": {"plain": {"every": 1}}}, "observers.plain.every: unknown key; remove it"),
    (
        {"observers": {"tracker": {"every": []}}},
        "observers.tracker.every: got an empty list; expected a whole number; write its digits without quotes",
    ),
    (
        {"observers": {"tracker": "often"}},
        'observers.tracker: got "often"; expected a mapping; write `key: value` lines below it',
    ),
    ({"observers": ["tracker"]}, "observers: got a list; expected a mapping; write `key: value` lines below it"),
    (
        {"observers": {"trackr": {}}},
        "observers.trackr: no installed plugin offers the observer 'trackr' (installed: plain, tracker); "
        "did you mean 'tracker'?",
    ),
]


@pytest.mark.parametrize(("blocks", "message"), WRONG, ids=[message for _, message in WRONG])
def test_wrong_options_are_rejected(blocks: dict[str, Any], message: str) -> None:
    assert problem(**blocks) == message


def test_a_broken_plugin_is_named_with_its_remedy() -> None:
    message = problem(checkpoint_storage={"type": "broken"})
    assert message.startswith("checkpoint_storage.type: plugin stranger")
    assert "pip install nowhere" in message


def test_a_nested_model_with_further_keys_needs_a_model_that_decides_on_its_own() -> None:
    """Without an ``extra`` of its own, the outer model would refuse the keys that the inner one allows."""
    assert problem(checkpoint_storage={"type": "nested"}).endswith(
        "names 'det_stranger:Nested' for 'nested', but its nested model Open sets extra='allow', while det refuses all "
        "unknown keys in the block of a model that does not configure `extra`; add to Nested: "
        "model_config = ConfigDict(extra='forbid')"
    )


@pytest.mark.parametrize(("name", "named"), [("steps", "'det_stranger:Steps'"), ("bare", "no config model")])
def test_a_search_method_needs_a_length_or_a_unit(name: str, named: str) -> None:
    assert problem(searcher={"name": name, "metric": "loss"}) == (
        f"searcher.name: plugin stranger  (det_stranger) names {named} for {name!r}, but the config model of a search "
        "method must have a length, or trials would not know how long to train; add the field "
        "`max_length: PositiveLength` from det_core.config, or a property `unit` if lengths have another name"
    )


def test_a_search_method_may_name_its_unit_only() -> None:
    assert parse_config({"searcher": {"name": "rounds", "metric": "loss"}}).searcher.unit == "epochs"


def test_a_clash_lists_the_providers() -> None:
    assert "offered by several distributions" in problem(checkpoint_storage={"type": "twice"})


def test_a_model_may_allow_any_key() -> None:
    config = parse_config({**GOOD, "checkpoint_storage": {"type": "open", "anything": 1}})
    assert config.dump()["checkpoint_storage"]["anything"] == 1
    assert parse_config(config.dump()) == config


def test_options_are_stored_by_their_keys() -> None:
    config = parse_config({**GOOD, "checkpoint_storage": {"type": "gzip", "base": "/tmp"}})
    assert config.dump()["checkpoint_storage"]["base"] == "/tmp"
    assert parse_config(config.dump()) == config


def test_optimizations_may_be_set_in_either_place() -> None:
    one = {"distributed": {"backend": "ring", "tensor_fusion_threshold": 32}, "entrypoint": "model:Trial"}
    config = parse_config({**GOOD, **one})
    assert parse_config(config.dump()) == config
    parse_config({**GOOD, "distributed": {"backend": "ring"}, "optimizations": {"tensor_fusion_threshold": 16}})


def test_the_schema_has_the_installed_plugins() -> None:
    schema = config_schema()
    definitions = json.loads(json.dumps(schema))["$defs"]
    variants = {ref["$ref"].rpartition("/")[2] for ref in definitions["CheckpointStorageConfig"]["oneOf"]}
    names = ("broken", "directory", "gzip", "nested", "open", "shared_fs", "twice")
    assert variants == {f"storage.{name}" for name in names}
    gzip = definitions["storage.gzip"]
    assert gzip["properties"]["type"]["const"] == "gzip"
    assert gzip["properties"]["base"]["description"] == "Root of all `.gz` files, a `pathlib.Path`."
    assert gzip["properties"].keys() == {
        "type", "base", "inner", "note", "save_trial_best", "save_trial_latest", "save_experiment_best",
    }  # fmt: skip
    assert gzip["required"] == ["type", "base"]
    assert definitions["storage.broken"]["additionalProperties"] is True
    assert definitions["launcher.local"]["required"] == []
    assert definitions["backend.None"]["properties"]["backend"]["const"] is None


def test_observers_have_options_by_name() -> None:
    config = parse_config({**GOOD, "observers": {"tracker": {"every": 2, "pin": "hush"}, "plain": None}})
    dumped = config.dump()["observers"]
    assert dumped == {
        "tracker": {"observer": "an option that is named like the kind", "every": 2, "pin": "hush"},
        "plain": {},
    }
    assert "hush" not in f"{config!r} {dumped!r}"
    assert parse_config(config.dump()) == config
    assert "hush" not in problem(observers={"tracker": {"every": "x", "pin": "hush"}})


def test_the_schema_has_the_options_of_observers() -> None:
    schema = config_schema()
    observers = schema["properties"]["observers"]
    assert observers["properties"].keys() == {"tracker", "plain"} and observers["additionalProperties"] is False
    tracker = schema["$defs"]["observer.tracker"]
    assert tracker["properties"].keys() == {"observer", "every", "pin"} and tracker["additionalProperties"] is False


def test_an_unusable_observer_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"entrypoint: m:T\nsearcher: {json.dumps(GOOD['searcher'])}\nobservers:\n  tracker: {{every: 3}}\n")
    with pytest.raises(
        ConfigError, match=r"c\.yaml:4: observers\.tracker: plugin stranger .* failed to load 'tracker'"
    ):
        load_config(path, import_targets=True)


def test_unusable_targets_are_reported_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "searcher:\n  name: halton\n  metric: loss\n  max_length: 10\n"
        "checkpoint_storage:\n  anything: 1\n  type: open\nentrypoint: m:T\n"
    )
    assert load_config(path).searcher.name == "halton"
    with pytest.raises(ConfigError) as caught:
        load_config(path, import_targets=True)
    assert [(problem.line, problem.path) for problem in caught.value.problems] == [
        (2, "searcher.name"),
        (7, "checkpoint_storage.type"),
    ]
    assert all("plugin stranger" in problem.message and "'x:y'" in problem.message for problem in caught.value.problems)


@pytest.mark.parametrize(("kind", "words"), [("open", "failed to load 'open'"), ("twice", "several distributions")])
def test_the_command_reports_clashes_and_unusable_targets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, words: str
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"searcher: {{name: single, metric: a, max_length: 1}}\ncheckpoint_storage: {{type: {kind}}}\n")
    assert main(["config", "check", str(path)]) == 2
    assert f"{path}:2: checkpoint_storage.type:" in (told := capsys.readouterr().err)
    assert words in told
