"""Registration of plugins with defects, and selection of the cases of tests that must notice them."""

from __future__ import annotations

from collections.abc import Iterator

import importlib_metadata
import pytest

from det_core.testing._plugin_metadata import write_plugin_metadata


@pytest.fixture(scope="module")
def entry_points(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[importlib_metadata.EntryPoints]:
    """Register the module that is named ``PLUGIN`` with processes that tests start, and return all entry points."""
    site = tmp_path_factory.mktemp("site")
    write_plugin_metadata(site, "det-broken", request.module.PLUGIN)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(site)
        yield importlib_metadata.entry_points(group="det")


@pytest.fixture
def registered(entry_points: importlib_metadata.EntryPoints, monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the plugin in this process, too. The installed distributions are scanned once per module."""
    monkeypatch.setattr(importlib_metadata, "entry_points", lambda group: entry_points)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Drop cases in which an implementation of `make_defect_tests` shows no defect."""
    items[:] = [item for item in items if _is_chosen(item)]


def _is_chosen(item: pytest.Item) -> bool:
    caught = getattr(getattr(item, "cls", None), "caught", None)
    return caught is None or item.name in caught or item.name.partition("[")[0] in caught
