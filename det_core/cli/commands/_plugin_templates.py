"""New distributions with a plugin, for ``det plugins new``, written from the templates of det-core."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from string import Template

import importlib_metadata

from det_core.cli._command_table import UsageError
from det_core.errors import DetError, PluginClash
from det_core.package_commands import package_command
from det_core.plugins import normalize_distribution_name, plugin_registry
from det_core.plugins._known_distributions import DISTRIBUTIONS
from det_core.version import __version__


@dataclass(frozen=True)
class PluginTemplate:
    """Texts about one kind of plugin. Its files are in the directory that is named like the kind."""

    summary: str
    """What an author gets, in one line."""
    description: str
    """Description of the new distribution, in which ``{name}`` stands for the plugin's name."""
    page: str
    """Page of det's documentation."""
    separator: str = "_"
    """Character between the words of the plugin's name."""
    requires: tuple[str, ...] = ("det-core",)
    """Distributions of det that it imports."""

    @property
    def requirements(self) -> str:
        """Requirements of the new distribution, in TOML without brackets."""
        versions = compatible_versions(__version__)
        return ", ".join(f'"{name}{versions}"' for name in self.requires)


TEMPLATES: Mapping[str, PluginTemplate] = {
    "framework": PluginTemplate(
        "a base class of trials, and the adapter with which det trains them: gradient descent in plain Python",
        "Trial framework {name} for det.",
        "docs/frameworks.md",
    ),
    "backend": PluginTemplate(
        "a launcher of the workers of a distributed trial: processes on each node",
        "Distributed backend {name} for det.",
        "docs/backends.md",
    ),
    "storage": PluginTemplate(
        "a store of checkpoints: files in a directory", "Checkpoint storage {name} for det.", "docs/storage.md"
    ),
    "launcher": PluginTemplate(
        "a launcher of the processes of trials: behind a command such as nice, or ssh HOST",
        "Launcher {name} for det.",
        "docs/launchers.md",
        requires=("det-cluster", "det-core"),
    ),
    "search_method": PluginTemplate(
        "a method that decides which trials train, and for how long: a random search",
        "Search method {name} for det.",
        "docs/searching.md",
    ),
    "observer": PluginTemplate(
        "a receiver of events, which passes them on: metrics in CSV files",
        "Observer {name} for det.",
        "docs/observers.md",
    ),
    "command": PluginTemplate(
        "a subcommand of det: a table of trials", "Command {name} for det.", "docs/commands.md", separator="-"
    ),
}
"""Templates by kind, a key of `det_core.plugins.KINDS`."""

_NAME = re.compile(r"[a-z]([a-z0-9._-]*[a-z0-9])?", re.ASCII | re.IGNORECASE)
_PREFIX = "det-"
_DIRECTORY = Path(__file__).parents[1] / "templates" / "plugins"
"""Directory with the templates of each kind, and with those that all kinds have in ``common``."""


@dataclass(frozen=True)
class PluginNames:
    """Names in a new distribution.

    Args:
        kind: a key of `TEMPLATES`.
        words: words of the name, in lower case.
    """

    kind: str
    words: tuple[str, ...]

    @classmethod
    def parse(cls, kind: str, text: str) -> PluginNames:
        """Return the names for what the user typed, with or without ``det-``.

        Raises:
            UsageError: the name cannot be that of a distribution and of Python classes.
        """
        name = normalize_distribution_name(text).removeprefix(_PREFIX)
        if not (_NAME.fullmatch(text) and _NAME.fullmatch(name)):
            raise UsageError(
                f"{text!r} cannot be the name of a plugin; expected letters, digits, '-', '_' and '.', with a letter "
                "first and a letter or digit last, such as my-plugin"
            )
        return cls(kind, tuple(name.split("-")))

    @property
    def plugin(self) -> str:
        """Name of the plugin in configs, or on the command line."""
        return TEMPLATES[self.kind].separator.join(self.words)

    @property
    def distribution(self) -> str:
        """Name of the distribution."""
        return _PREFIX + "-".join(self.words)

    @property
    def package(self) -> str:
        """Name of the Python package."""
        return self.distribution.replace("-", "_")

    def refuse_clash(self) -> None:
        """Check that nothing else has these names.

        Raises:
            PluginClash: a plugin of this kind, a distribution or a Python package has one.
        """
        kind, name, advice = self.kind.replace("_", " "), "-".join(self.words), "choose another NAME"
        for spec in (spec for report in plugin_registry().reports for its, spec in report.provides if its == self.kind):
            if normalize_distribution_name(spec.name) == name:
                raise PluginClash(f"the {kind} {spec.name!r} is installed ({spec.target}); {advice}")
        for known, owner in DISTRIBUTIONS.get(self.kind, {}).items():
            if normalize_distribution_name(known) == name:
                command = package_command("install", owner)
                raise PluginClash(f"{owner} offers the {kind} {known!r}; type: {command}, or {advice}")
        if any(self.distribution in owners.values() for owners in DISTRIBUTIONS.values()):
            raise PluginClash(f"{self.distribution} is a distribution of det; {advice}, such as my-{name}")
        try:
            version = importlib_metadata.version(self.distribution)
        except importlib_metadata.PackageNotFoundError:
            pass
        else:
            raise PluginClash(f"{self.distribution} {version} is installed; {advice}, such as my-{name}")
        if found := find_spec(self.package):
            place = found.origin or ", ".join(found.submodule_search_locations or ())
            raise PluginClash(f"Python finds another {self.package} in {place}; {advice}, or remove it")


def render_files(names: PluginNames) -> dict[str, str]:
    """Return the contents of the files of a new distribution by path."""
    template = TEMPLATES[names.kind]
    words = {
        "name": names.plugin,
        "distribution": names.distribution,
        "package": names.package,
        "prefix": "".join(map(str.capitalize, names.words)),
        "variable": "_".join(names.words).upper(),
        "description": template.description.format(name=names.plugin),
        "page": template.page,
        "python": importlib_metadata.metadata("det-core")["Requires-Python"],
        "requirements": template.requirements,
    }
    own = _render(_DIRECTORY / names.kind, words)
    usage = own.pop("usage.md").rstrip()
    rendered = {**_render(_DIRECTORY / "common", {**words, "usage": usage}), **own}
    return {re.sub("^package/", f"{names.package}/", path): text for path, text in sorted(rendered.items())}


def compatible_versions(version: str) -> str:
    """Return the range of releases of det-core with which a plugin written for ``version`` works (docs/contract.md)."""
    major, minor = map(int, version.split(".")[:2])
    return f">={major}.{minor},<{f'0.{minor + 1}' if major == 0 else major + 1}"


def write_files(directory: Path, contents: Mapping[str, str]) -> None:
    """Write files into a directory that is empty or does not exist. After a failure, nothing is left behind.

    Args:
        directory: the directory.
        contents: contents of the files by path.

    Raises:
        DetError: the directory contains something, or its parent does not exist.
        OSError: the files cannot be written.
    """
    directory = directory.resolve()
    exists = directory.exists()
    if exists and not directory.is_dir():
        raise DetError(f"{directory} is a file; expected a new or empty directory; choose another DIR")
    if exists and (found := next(directory.iterdir(), None)):
        raise DetError(
            f"{directory} contains {found.name}; expected a new or empty directory; choose another DIR, or empty it"
        )
    if not directory.parent.is_dir():
        raise DetError(f"the directory {directory.parent} does not exist; type: mkdir -p {directory.parent}")
    with tempfile.TemporaryDirectory(prefix=".det-plugins-new-", dir=directory if exists else directory.parent) as made:
        partial = Path(made, directory.name or "root")
        for path, text in contents.items():
            file = partial / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        if not exists:
            partial.rename(directory)
        else:  # it may be the working directory of a shell, so it stays
            for entry in list(partial.iterdir()):
                entry.rename(directory / entry.name)


def _render(directory: Path, words: Mapping[str, str]) -> dict[str, str]:
    """Return the rendered templates below a directory by relative path."""
    templates = {
        path.relative_to(directory): path.read_text(encoding="utf-8") for path in directory.rglob("*.template")
    }
    return {path.with_suffix("").as_posix(): Template(text).substitute(words) for path, text in templates.items()}
