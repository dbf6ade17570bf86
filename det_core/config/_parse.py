"""Parsing and validation of experiment configs from files, texts and mappings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from det_core.config._assignments import apply_assignment
from det_core.config._document import Document, Location, config_error, document_from_mapping, read_text
from det_core.config._experiment import ExperimentConfig
from det_core.config._legacy import convert_legacy_config
from det_core.config._plugin_blocks import PluginBlock
from det_core.config._validation_errors import MOST_PROBLEMS, explain_errors
from det_core.config._yaml import parse_yaml
from det_core.errors import ConfigError, PluginError, Problem


def load_config(path: str | Path, changes: Sequence[str] = (), *, import_targets: bool = False) -> ExperimentConfig:
    """Read and validate a YAML file.

    Args:
        path: the file.
        changes: values that replace those of the file, each as ``key.key=YAML``.
        import_targets: whether to also import the plugins that the config selects, and to report unusable ones.

    Raises:
        ConfigError: the file cannot be read, or the config is wrong. The error lists the problems.
    """
    text = read_text(Path(path))
    return parse_config(text, filename=str(path), changes=changes, import_targets=import_targets)


def parse_config(
    source: str | Mapping[str, Any],
    *,
    filename: str = "<config>",
    changes: Sequence[str] = (),
    import_targets: bool = False,
) -> ExperimentConfig:
    """Validate a config, with the models of the plugins that it selects.

    Args:
        source: YAML text, or the mapping that it describes.
        filename: name of the config in messages.
        changes: values that replace those of the config, each as ``key.key=YAML``.
        import_targets: whether to also import the plugins that the config selects, and to report unusable ones.

    Raises:
        ConfigError: the config is wrong. The error lists the problems, with line numbers if ``source`` is text.
    """
    document = parse_yaml(source, filename) if isinstance(source, str) else document_from_mapping(source, filename)
    if not isinstance(document.value, dict):
        found = "it is empty" if document.value is None else f"it is a {type(document.value).__name__}"
        raise config_error(
            filename, f"{found}; expected a mapping such as `searcher: ...`; add the experiment's keys", 1
        )
    for each in changes:
        apply_assignment(document, each, "--config")
    rewrites = convert_legacy_config(document)
    config = _validate(document, import_targets)
    config._rewrites = rewrites
    return config


def _validate(document: Document, import_targets: bool) -> ExperimentConfig:
    problems = list(document.problems)
    try:
        config = ExperimentConfig.model_validate(document.value)
        if import_targets:
            problems += _unusable_targets(document, config)
    except ValidationError as error:
        problems += explain_errors(error, document)
    told = {problem.path for problem in problems}
    unrecordable = (problem for problem in _unrecordable(document, document.value) if problem.path not in told)
    problems += islice(unrecordable, MOST_PROBLEMS)
    if problems:
        raise ConfigError(*sorted(problems, key=lambda problem: problem.line or 0))
    return config


def _unusable_targets(document: Document, config: ExperimentConfig) -> Iterator[Problem]:
    blocks = {(key, block.tag): block for key, block in config if isinstance(block, PluginBlock)}
    observers = {("observers", name): block for name, block in config.observers.items()}
    for location, block in {**blocks, **observers}.items():
        try:
            block.load_target()
        except PluginError as error:
            yield document.problem(location, str(error))


def _unrecordable(document: Document, value: Any, location: Location = ()) -> Iterator[Problem]:
    """Yield a problem for each number that is NaN or infinite, because JSON would record it as null."""
    if isinstance(value, float) and not math.isfinite(value):
        yield document.problem(
            location,
            f"expected a finite number, got {value}, which JSON cannot represent; put it in quotes or remove it",
        )
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _unrecordable(document, item, (*location, key))
