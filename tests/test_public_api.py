"""The public names are those that docs/public_api records, and docs/contract.md is about."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import public_api
import pytest
from public_api import public_names

import det_core
from det_core import comm, core, plugins, storage, tracking
from det_core.tracking import remote

ROOT = Path(__file__).resolve().parent.parent
SHARED = {
    f"det_core.{name}"
    for name in (
        "config.CheckpointStorageConfig",
        "core.event_stream",
        "core.observer_thread",
        "interfaces.observer.received_events",
        "interfaces.search_method.action_to_json",
        "launch.engine_signals",
        "launch.launchers",
        "launch.network.find_adjacent_free_ports",
        "launch.network.reserve_free_ports",
        "launch.output_lines",
        "launch.prepared_process",
        "launch.trial_lock",
        "launch.worker_environment",
        "plugins.measure_import",
        "plugins.misspelled_methods",
        "search.method_selection",
        "similar_names",
        "storage.config",
        "storage.find_checkpoint",
        "storage.publish_checkpoint",
        "storage.directory",
        "tracking.remote.dump_error",
        "tracking.secret_files",
    )
}
"""Modules of det-core that only `LIBRARIES` use, too. Like public ones, they change in minor releases only."""
LIBRARIES = ("det_cluster", "det_testing")
LAZY = (det_core, comm, core, plugins, storage, tracking, remote)


@pytest.mark.integration  # it reads all distributions
def test_the_public_names_are_the_recorded_ones_and_have_docstrings(capsys: pytest.CaptureFixture[str]) -> None:
    assert public_api.main(["--check"]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("package", LAZY, ids=lambda package: package.__name__)
def test_every_name_that_is_imported_on_first_use_exists(package: ModuleType) -> None:
    assert [name for name in vars(package).get("_EXPORTS", package.__all__) if not hasattr(package, name)] == []


def foreign_names(package: Path) -> Iterator[str]:
    """Yield the names of det's other packages that the files of a package import, or use as attributes of modules."""
    for file in package.rglob("*.py"):
        nodes = [*ast.walk(ast.parse(file.read_text()))]
        imported = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in nodes
            if isinstance(node, ast.ImportFrom) and node.module and not node.level
            for alias in node.names
        }
        used = [*imported.values()]
        for node in nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in imported:
                used.append(f"{imported[node.value.id]}.{node.attr}")
        yield from (name for name in used if name.startswith("det_") and name.partition(".")[0] != package.name)


def with_owners(name: str) -> set[str]:
    """Return a dotted name, and those of the class and the module that contain it."""
    parts = name.split(".")
    return {".".join(parts[:end]) for end in range(2, len(parts) + 1)}


@pytest.mark.integration  # it reads all distributions
def test_plugins_use_only_promised_names_of_each_other() -> None:
    modules = {path: module for package in public_api.load_modules().values() for path, module in package.items()}
    promised = {f"{path}.{name}" for path, module in modules.items() for name in public_names(module)}
    packages = [path.parent for path in ROOT.glob("plugins/*/*/__init__.py") if path.parent.name != "tests"]
    assert len(packages) > 9
    # Attributes of promised classes are promised, too.
    used = {
        package.name: {one for one in foreign_names(package) if not one.endswith("__")} - {*modules}
        for package in packages
    }
    for package, names in used.items():
        allowed = promised | SHARED if package in LIBRARIES else promised
        assert [one for one in sorted(names) if not with_owners(one) & allowed] == [], package
    assert {owner for one in LIBRARIES for name in used[one] for owner in with_owners(name)} >= SHARED, "not shared"


@pytest.mark.integration  # it reads all distributions
def test_nothing_outside_imports_more_of_the_command_line_than_its_entry_point() -> None:
    used = {name for directory in ("benchmarks", "examples", "plugins") for name in foreign_names(ROOT / directory)}
    assert [name for name in sorted(used) if name.startswith("det_core.cli.")] == ["det_core.cli.main"]
