"""Check of configs, start-up hooks and lists of requirements."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Any, Final

import yaml
from packaging.requirements import InvalidRequirement, Requirement

from det_core.config import parse_config
from det_core.errors import ConfigError
from determined._migration.code_check import explain_name
from determined._migration.findings import Finding

_KEYS = {"entrypoint", "hyperparameters", "searcher"}
"""Keys of which a YAML file has two or more if it is an experiment config."""
_PLUGINS = ("det-torch", "det-tensorflow", "det-estimator")
_FRAMEWORKS: Final = {"torch": "torch", "tensorflow": "tensorflow", "tensorflow-gpu": "tensorflow"}
"""Library in a list of requirements -> library that a plugin of det requires."""
_IMAGE = re.compile(r"tf-?1\.\d+|tensorflow-?1\.\d+")
_INSTALL = re.compile(r"\bpip3? install\b(.*)")


def check_config(text: str, file: str) -> Iterator[Finding]:
    """Yield the findings about a YAML file, which are none unless it is an experiment config.

    Args:
        text: content of the file.
        file: its path in findings.
    """
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return  # templates of other programs
    if not isinstance(value, Mapping) or len(_KEYS & value.keys()) < 2:
        return
    try:
        for notice in parse_config(text, filename=file).notices:
            yield Finding(file, None, "config", notice, is_problem=False)
    except ConfigError as error:
        for problem in error.problems:
            message = f"{problem.path}: {problem.message}" if problem.path else problem.message
            yield Finding(file, problem.line, "config", message)
    yield from _check_entrypoint(value.get("entrypoint"), file)
    if _IMAGE.search(str((value.get("environment") or {}).get("image"))):
        message = (
            "environment.image has TensorFlow 1, but det needs TensorFlow 2.15, where old names are in tf.compat.v1"
        )
        yield Finding(file, None, "version", message, is_problem=False)


def check_requirements(text: str, file: str) -> Iterator[Finding]:
    """Yield the findings about a list of requirements.

    Args:
        text: content of the file.
        file: its path in findings.
    """
    for number, line in enumerate(text.splitlines(), 1):
        yield from _check_requirement(line.partition("#")[0].strip(), file, number)


def check_startup_hook(text: str, file: str) -> Iterator[Finding]:
    """Yield the findings about a start-up hook.

    Args:
        text: content of the file.
        file: its path in findings.
    """
    yield Finding(file, None, "file", "det does not run this file; run its commands once by hand", is_problem=False)
    for number, line in enumerate(text.splitlines(), 1):
        if match := _INSTALL.search(line):
            try:
                words = shlex.split(match[1], comments=True)
            except ValueError:
                continue  # half of a quoted text
            for word in words:
                yield from _check_requirement(word, file, number)


def _check_entrypoint(entrypoint: Any, file: str) -> Iterator[Finding]:
    words = entrypoint if isinstance(entrypoint, list) else str(entrypoint or "").split()
    for before, word in itertools.pairwise(words):
        if before == "-m" and word.partition(".")[0] == "determined" and (message := explain_name(word)):
            yield Finding(file, None, "entrypoint", message)


def _check_requirement(text: str, file: str, line: int) -> Iterator[Finding]:
    try:
        wanted = Requirement(text)
    except InvalidRequirement:
        return
    if wanted.name.lower() == "determined":
        message = "det-compat replaces determined, and both cannot be installed together; remove this requirement"
        yield Finding(file, line, "version", message)
    library = _FRAMEWORKS.get(wanted.name.lower())
    pinned = [one.version for one in wanted.specifier if one.operator in ("==", "~=", "<", "<=")]
    for needed in _needed(library) if library and pinned else ():
        if not any(needed.specifier.contains(version.rstrip(".*"), prereleases=True) for version in pinned):
            message = f"{wanted}: det needs {needed.name}{needed.specifier}; change the version"
            yield Finding(file, line, "version", message)
            return


def _needed(library: str) -> Iterator[Requirement]:
    """Yield the requirements of det's installed plugins for a library."""
    for plugin in _PLUGINS:
        try:
            given = metadata.requires(plugin) or []
        except metadata.PackageNotFoundError:
            continue
        for text in given:
            requirement = Requirement(text)
            if requirement.name == library and requirement.specifier:
                yield requirement
