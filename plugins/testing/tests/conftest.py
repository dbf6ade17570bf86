"""Registration of plugins with defects and of examples."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import importlib_metadata
import pytest

from det_core.cli import main
from plugins.testing.tests.defects import drop_other_cases
from plugins.testing.tests.plugin_sites import register_broken, register_example
from tests.core_fixtures import (  # noqa: F401
    _quick_scans,
    det_home,
    forked,
    installed,
    only_det_core,
    registry_of_installed,
)

sys.path += map(str, (Path(__file__).parents[3] / "examples").glob("*_plugin"))


@pytest.fixture(scope="module")
def entry_points(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[importlib_metadata.EntryPoints]:
    """Register a plugin with processes that tests start, and return all entry points.

    The test module names the plugin's module, ``PLUGIN``, or the directory of its distribution, ``EXAMPLE``.
    """
    directories = [tmp_path_factory.mktemp("site")]
    if example := getattr(request.module, "EXAMPLE", None):
        register_example(directories[0], example)
        directories.append(example)
    else:
        register_broken(directories[0], request.module.PLUGIN)
    with pytest.MonkeyPatch.context() as patch:
        for directory in directories:
            patch.syspath_prepend(directory)
            patch.setenv("PYTHONPATH", str(directory), prepend=os.pathsep)
        yield importlib_metadata.entry_points(group="det")


@pytest.fixture
def registered(entry_points: importlib_metadata.EntryPoints, monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the plugin in this process, too. The installed distributions are scanned once per module."""
    monkeypatch.setattr(importlib_metadata, "entry_points", lambda group: entry_points)


@pytest.fixture
def det(registered: None, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return a function that runs a command in this process, and returns its output and exit code."""

    def run(*arguments: object) -> str:
        code = main([str(argument) for argument in arguments])
        return f"{''.join(capsys.readouterr())}\nexit code {code}"

    return run


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    drop_other_cases(items)
