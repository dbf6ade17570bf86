"""The JSON schema accepts the same configs as the models. A small validator checks the keywords that it uses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from det_core.config import config_schema, load_config
from det_core.config._block import IGNORED
from det_core.errors import ConfigError

EXAMPLES = [path for path in sorted((Path(__file__).parent / "examples").glob("*.yaml")) if path.stem != "release_0_12"]
TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}


def accepts(schema: Any, value: Any, root: dict[str, Any]) -> bool:
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema:
        target: Any = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        return accepts(target, value, root)
    types = [schema["type"]] if isinstance(schema.get("type"), str) else schema.get("type", [])
    if types and not any(_is(value, kind) for kind in types):
        return False
    if ("const" in schema and value != schema["const"]) or ("enum" in schema and value not in schema["enum"]):
        return False
    if "anyOf" in schema and not any(accepts(option, value, root) for option in schema["anyOf"]):
        return False
    if "oneOf" in schema and sum(accepts(option, value, root) for option in schema["oneOf"]) != 1:
        return False
    if isinstance(value, list):
        return all(accepts(schema.get("items", {}), item, root) for item in value)
    return not isinstance(value, dict) or _accepts_mapping(schema, value, root)


def _accepts_mapping(schema: dict[str, Any], value: dict[str, Any], root: dict[str, Any]) -> bool:
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    complete = set(schema.get("required", ())) <= value.keys()
    return complete and all(accepts(properties.get(key, others), item, root) for key, item in value.items())


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, TYPES[kind]) and not (isinstance(value, bool) and kind in ("integer", "number"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_schema_accepts_the_examples_and_their_dumps(path: Path) -> None:
    schema = json.loads(json.dumps(config_schema()))
    assert accepts(schema, yaml.safe_load(path.read_text()), schema)
    assert accepts(schema, load_config(path).dump(), schema)


# Changes after which both the schema and the models reject a valid config.
REFUSED: list[dict[str, Any]] = [
    {"nam": "x"},
    {"searcher": {"name": "singel", "metric": "a", "max_length": 1}},
    {"searcher": {"name": "single", "max_length": 1}},
    {"searcher": {"name": "single", "metric": "a", "max_length": {"steps": 1}}},
    {"searcher": {"name": "single", "metric": "a", "max_length": 1, "x": 1}},
    {"checkpoint_storage": {"type": "directory", "host_path": "/x"}},
    {"launcher": {"slot": 1}},
    {"distributed": {"backend": "nowhere"}},
    {"hyperparameters": {"a": {"b": {"type": "int", "minval": 1}}}},
    {"optimizations": {"mixed_precision": "O9"}},
    {"debug": "x"},
    {"checkpoint_code": "yes"},
]


@pytest.mark.parametrize("change", REFUSED, ids=str)
def test_the_schema_rejects_what_the_models_reject(change: dict[str, Any], tmp_path: Path) -> None:
    config = {"searcher": {"name": "single", "metric": "a", "max_length": 1}, **change}
    schema = config_schema()
    assert not accepts(schema, config, schema)
    (tmp_path / "c.yaml").write_text(json.dumps(config))
    with pytest.raises(ConfigError):
        load_config(tmp_path / "c.yaml")


def test_every_reference_has_a_target() -> None:
    schema = config_schema()
    text = json.dumps(schema)
    assert "BaseModel" not in text
    references = {part.partition('"')[0] for part in text.split('"$ref": "#/')[1:]}
    for reference in references:
        target = schema
        for part in reference.split("/"):
            target = target[part]


def properties_in(schema: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(schema, dict):
        yield from ((name, each) for name, each in schema.get("properties", {}).items() if each is not False)
        schema = [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values(), *schema.get("anyOf", ())]
    for each in schema if isinstance(schema, list) else ():
        yield from properties_in(each)


def test_every_property_has_a_description() -> None:
    schema = config_schema()
    properties = list(properties_in(schema))
    assert [name for name, each in properties if not each.get("description")] == []
    assert dict(properties)["pod_spec"]["description"] == f"Specification of the Kubernetes pod. {IGNORED}"
    assert "``" not in json.dumps(schema)


def test_importing_the_config_imports_nothing_heavy() -> None:
    code = "import det_core.config, sys; print(*(m for m in ('torch', 'sqlalchemy', 'rich') if m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"
