"""The config reference shows every key, with a unit and an example. The examples are valid."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import config_reference
import pytest
import yaml
from pydantic import BaseModel, ValidationError

from det_core.config import config_schema, load_config
from det_core.config._experiment import ExperimentConfig
from det_core.config._hyperparameters import Categorical, Const, Double, Int, Log
from det_core.config._plugin_blocks import PLUGIN_BLOCKS, ObserverConfig
from det_core.plugins import plugin_registry
from tests.config.test_json_schema import accepts
from tests.documents.page_runner import blocks_of

ROOT = Path(__file__).parents[2]
CONFIGS = [path for path in sorted((ROOT / "examples").rglob("*.yaml")) if "searcher:" in path.read_text()]


def keys_of(sections: list[Any]) -> Iterator[Any]:
    for section in sections:
        yield from section.keys
        yield from keys_of(section.parts)


def models() -> Iterator[type[BaseModel]]:
    """Yield all models of the config, those of the installed plugins included."""
    found = [ExperimentConfig, *PLUGIN_BLOCKS, Categorical, Const, Double, Int, Log]
    plugins = plugin_registry()
    for block in (*PLUGIN_BLOCKS, ObserverConfig):
        found += [block.options_model(name) for name in plugins.names(block.kind)]
    seen: set[type[BaseModel]] = set()
    while found:
        model = found.pop()
        if model not in seen:
            seen.add(model)
            yield model
            inner = (field.annotation for field in model.model_fields.values())
            found += [kind for kind in inner if isinstance(kind, type) and issubclass(kind, BaseModel)]


def test_every_key_has_a_type_a_meaning_an_example_and_numbers_a_unit() -> None:
    schema = config_schema()
    read = config_reference.SchemaReader(schema)
    keys = [key for key in keys_of(read.sections()) if not config_reference.is_ignored(key)]
    assert len(keys) > 100
    assert [key.path for key in keys if not key.schema.get("description")] == []
    assert [key.path for key in keys if not read.examples(key.schema)] == []
    numbers = [key for key in keys if re.search(r"integer|number|length", read.type_text(key.schema))]
    assert [key.path for key in numbers if not read.unit(key.schema)] == []


def test_every_key_of_the_schema_is_on_the_page() -> None:
    schema = config_schema()
    named = re.findall(r"`([\w.]+)`", config_reference.render_reference(schema))
    parts = {part for name in named for part in name.split(".")}
    blocks = [schema, *(part for name, part in schema["$defs"].items() if "." in name)]
    assert {key for block in blocks for key in block.get("properties", {})} - parts == set()


def test_every_example_is_valid() -> None:
    needed = {"searcher": {"name": "single", "metric": "a", "max_length": 1}}
    checked = []
    for model in models():
        required = {
            name: field.examples[0]
            for name, field in model.model_fields.items()
            if field.is_required() and field.examples
        }
        for name, field in model.model_fields.items():
            for example in field.examples or ():
                values = (needed if model is ExperimentConfig else required) | {name: example}
                try:
                    model.model_validate(values)
                except ValidationError as error:
                    wrong = [part for part in error.errors() if part["loc"][:1] == (name,)]
                    assert wrong == [], (model, name, example)
                checked.append((model, name))
    assert len(checked) > 80


def test_every_default_is_valid() -> None:
    schema = config_schema()
    keys = [key for key in keys_of(config_reference.SchemaReader(schema).sections()) if "default" in key.schema]
    wrong = [key.path for key in keys if not accepts({**key.schema}, key.schema["default"], schema)]
    assert len(keys) > 60
    assert wrong == []


@pytest.mark.integration
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_schema_for_editors_accepts_the_examples(path: Path) -> None:
    schema = json.loads(json.dumps(config_schema()))
    assert accepts(schema, yaml.safe_load(path.read_text()), schema)


@pytest.mark.parametrize("page", ["config", "editors"])
def test_the_configs_of_the_pages_are_valid(page: str, tmp_path: Path) -> None:
    schema = config_schema()
    shown = [block.code for block in blocks_of(ROOT / "docs" / "reference" / f"{page}.md") if block.language == "yaml"]
    for code in shown:
        assert accepts(schema, yaml.safe_load(code), schema)
        (tmp_path / "const.yaml").write_text(code if "entrypoint" in code else f"entrypoint: model_def:Trial\n{code}")
        assert load_config(tmp_path / "const.yaml")
    assert shown
