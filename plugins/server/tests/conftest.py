"""Fixtures for a site over a tracking store, with and without users.

Tests that take `store` run on SQLite, and in ``make test-more`` also on a private PostgreSQL server, except for those
in `SQLITE_ONLY`, with one case each.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from argon2 import PasswordHasher
from det_server import _passwords
from det_server.pages import logs, utilization

from det_core.interfaces.account_records import Role
from det_core.interfaces.tracking import TrackingStore
from det_core.plugins import plugin_registry
from det_core.tracking import open_store
from tests.postgresql import PostgreSQL, delete_all_rows, running_postgresql

from .serving import ServedSite, account_access, local_access, served, site_without_server

KEPT = ("DET_HOME", "DET_SLOTS_DIR", "DET_SOAK")
"""Variables of the tests themselves."""
SQLITE_ONLY: Mapping[str, str] = {
    "test_load": "its servers open the store in DET_HOME",
    "test_runner_keeper": "its servers open the store in DET_HOME",
    "test_server_command": "the command opens the store in DET_HOME",
    "test_user_command": "the command opens the store in DET_HOME",
}
"""Modules that do not run on PostgreSQL, with the reasons."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Run the tests in the browser last, because an event loop runs in this thread from its start to its end.

    On PostgreSQL, leave all but one case of each test to the soak.
    """
    seen: set[str] = set()
    for item in items:
        name = item.nodeid.partition("[")[0]
        if hasattr(item, "callspec") and item.callspec.params.get("backend") == "postgresql":
            if name in seen:
                item.add_marker(pytest.mark.soak)
            seen.add(name)
    yield  # pytest groups the tests by their backends
    items.sort(key=lambda item: "browser" in item.path.parts)


@pytest.fixture(autouse=True)
def whole_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no answer end early because the machine is slow."""
    for page in (logs, utilization):
        monkeypatch.setattr(page, "_MOST_SECONDS", 1000.0)


@pytest.fixture(autouse=True)
def det_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set DET_HOME to a new path, hide the settings of whoever runs the tests, and return the path."""
    home = tmp_path / "det-home"
    monkeypatch.setenv("DET_HOME", str(home))
    for name in [name for name in os.environ if name.startswith("DET_") and name not in KEPT]:
        monkeypatch.delenv(name)
    plugin_registry.cache_clear()
    return home


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" in metafunc.fixturenames and metafunc.definition.path.stem not in SQLITE_ONLY:
        on_postgresql = pytest.param("postgresql", marks=pytest.mark.slow)
        on_sqlite = pytest.param("sqlite", id=pytest.HIDDEN_PARAM)
        metafunc.parametrize("backend", [on_sqlite, on_postgresql], indirect=True, scope="session")


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> str:
    """Return ``sqlite`` or ``postgresql``."""
    return str(getattr(request, "param", "sqlite"))


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    with running_postgresql() as server:
        yield server


@pytest.fixture(scope="session")
def shared_database(postgresql: PostgreSQL) -> str:
    """Return the URL of the database that tests use in turn."""
    return postgresql.create_database()


@pytest.fixture
def store(
    request: pytest.FixtureRequest, backend: str, det_home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TrackingStore]:
    """Return the tracking store that commands use."""
    if backend == "sqlite":
        with open_store() as opened:
            yield opened
        return
    url: str = request.getfixturevalue("shared_database")
    monkeypatch.setenv("DET_MASTER", url)
    with open_store() as opened:
        yield opened
    delete_all_rows(url)


@pytest.fixture
def quick_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hash passwords at the least cost, also for unknown users, because each takes a sixth of a second otherwise."""
    hasher = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(_passwords, "_hasher", lambda: hasher)
    monkeypatch.setattr(_passwords, "NOBODY", hasher.hash("nobody"))


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
