"""JSON schema of the experiment config, for editors.

Its descriptions are the docstrings of the models' fields. Pydantic's ``use_attribute_docstrings`` would read the source
code when a model is defined, and slow down every start.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from det_core.config._experiment import ExperimentConfig
from det_core.config._length import Length
from det_core.config._plugin_blocks import OPTIONS_KEY, PLUGIN_BLOCKS, ObserverConfig, PluginBlock
from det_core.errors import PluginError
from det_core.plugins import plugin_registry

_ROLE = re.compile(r":[a-z:]+:(?=`)")
"""Role of reStructuredText, such as ``:class:`` before a name in backticks."""


def config_schema() -> dict[str, Any]:
    """Return the JSON schema. Each block that selects a plugin has one variant per installed plugin."""
    schema = ExperimentConfig.model_json_schema(schema_generator=_DescribingGenerator)
    definitions = schema["$defs"]
    for block in PLUGIN_BLOCKS:
        core = definitions[block.__name__]
        names: list[str | None] = [*plugin_registry().names(block.kind)]
        if block.model_fields[block.tag].default is None:
            names.append(None)
        variants = {f"{block.kind}.{name}": _variant(block, core, name) for name in names}
        definitions |= variants
        definitions[block.__name__] = {
            "description": core["description"],
            "oneOf": [{"$ref": f"#/$defs/{variant}"} for variant in variants],
        }
    del definitions[ObserverConfig.__name__]
    observers = {name: _options_schema(ObserverConfig, name) for name in plugin_registry().names("observer")}
    definitions |= {
        f"observer.{name}": {"additionalProperties": False, **own, "type": "object"} for name, own in observers.items()
    }
    schema["properties"]["observers"] |= {
        "properties": {
            name: {"$ref": f"#/$defs/observer.{name}", "description": f"Options of the observer {name}."}
            for name in observers
        },
        "additionalProperties": False,
    }
    del definitions["BaseModel"]  # type of the options while no plugin is chosen
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _variant(block: type[PluginBlock], core: dict[str, Any], name: str | None) -> dict[str, Any]:
    own = _options_schema(block, name)
    common = {key: value for key, value in core["properties"].items() if key != OPTIONS_KEY}
    # Users may omit the name of the default plugin only.
    tag = [] if block.model_fields[block.tag].default == name else [block.tag]
    required = {*core["required"], *own.get("required", ())} - {OPTIONS_KEY, block.tag}
    chosen = {"const": name, "description": common[block.tag]["description"]}
    return {
        "additionalProperties": False,
        **own,
        "type": "object",
        "properties": {**common, block.tag: chosen, **own.get("properties", {})},
        "required": [*tag, *sorted(required)],
    }


def _options_schema(block: type[PluginBlock], name: str | None) -> dict[str, Any]:
    place = f"#/$defs/{block.kind}.{name}/$defs/{{model}}"
    try:
        model = block.options_model(name)
    except PluginError:
        return {"additionalProperties": True}  # the registry has warned about the plugin already
    return model.model_json_schema(ref_template=place, schema_generator=_DescribingGenerator)


class _DescribingGenerator(GenerateJsonSchema):
    """Schema generator that adds the docstrings of fields to their descriptions."""

    def encode_default(self, dft: Any) -> Any:
        """Return a default as users write it."""
        return super().encode_default(dft.dump() if isinstance(dft, Length) else dft)

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Return the schema of a model, with descriptions as plain text."""
        made, model = super().model_schema(schema), schema["cls"]
        docstrings = _docstrings_of_fields(model)
        properties = made.get("properties", {})
        for name, field in model.model_fields.items():
            if (key := field.alias or name) in properties and name in docstrings:
                # The type `Ignored` already gives a description to its fields, which tells that they have no effect.
                known = properties[key].get("description", "")
                properties[key] = {**properties[key], "description": f"{docstrings[name]} {known}".rstrip()}
        if "description" in made:
            made["description"] = _plain(made["description"])
        return made


def _docstrings_of_fields(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstrings of the fields of a model by name, inherited ones included."""
    return {
        name: text
        for each in reversed(model.__mro__)
        if issubclass(each, BaseModel)
        for name, text in _docstrings_in(each.__module__).get(each.__name__, {}).items()
    }


@cache
def _docstrings_in(module: str) -> Mapping[str, Mapping[str, str]]:
    """Return the docstrings of attributes by class and attribute. Empty if the source code is not available."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError):
        return {}
    return {node.name: dict(_documented(node)) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def _documented(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for statement, following in pairwise(node.body):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, " ".join(_plain(text).split())


def _plain(text: str) -> str:
    """Return a docstring without the markup of Sphinx. Names keep single backticks, as in Markdown."""
    return _ROLE.sub("", text).replace("``", "`")
