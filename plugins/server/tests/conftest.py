"""Fixtures for a site over a tracking store, with and without users."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from argon2 import PasswordHasher
from det_server import _passwords

from det_core.interfaces.account_records import Role
from det_core.interfaces.tracking import TrackingStore
from det_core.plugins import plugin_registry
from det_core.tracking import open_store

from .serving import ServedSite, account_access, local_access, served, site_without_server

KEPT = ("DET_HOME", "DET_SLOTS_DIR", "DET_SOAK")
"""Variables of the tests themselves."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests in the browser last, because an event loop runs in this thread from its start to its end."""
    items.sort(key=lambda item: "browser" in item.path.parts)


@pytest.fixture(autouse=True)
def det_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set DET_HOME to a new path, hide the settings of whoever runs the tests, and return the path."""
    home = tmp_path / "det-home"
    monkeypatch.setenv("DET_HOME", str(home))
    for name in [name for name in os.environ if name.startswith("DET_") and name not in KEPT]:
        monkeypatch.delenv(name)
    plugin_registry.cache_clear()
    return home


@pytest.fixture
def store(det_home: Path) -> Iterator[TrackingStore]:
    """Return the embedded tracking store."""
    with open_store() as opened:
        yield opened


@pytest.fixture
def quick_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hash passwords at the least cost, because each takes a sixth of a second otherwise."""
    monkeypatch.setattr(_passwords, "_hasher", lambda: PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))


@pytest.fixture
def local(store: TrackingStore) -> ServedSite:
    """Return a site without users, as on a laptop."""
    return site_without_server(store, local_access)


@pytest.fixture
def served_local(store: TrackingStore) -> Iterator[ServedSite]:
    """Serve a site without users."""
    with served(store, local_access) as site:
        yield site


@pytest.fixture
def team(store: TrackingStore, quick_passwords: None) -> ServedSite:
    """Return a site with the users ``root`` (an admin), ``ann`` (a user) and ``vic`` (a viewer)."""
    site = site_without_server(store, account_access)
    _add_users(site)
    return site


@pytest.fixture
def served_team(store: TrackingStore, quick_passwords: None) -> Iterator[ServedSite]:
    """Serve a site with the same users."""
    with served(store, account_access) as site:
        _add_users(site)
        yield site


def _add_users(site: ServedSite) -> None:
    for name, role in (("root", Role.ADMIN), ("ann", Role.USER), ("vic", Role.VIEWER)):
        site.add_user(name, role)
