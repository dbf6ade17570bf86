"""Several servers over one PostgreSQL database share accounts, sessions and records."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from det_server._passwords import hash_password

from det_core.interfaces.account_records import Role
from det_core.interfaces.records import MetricsReport
from det_core.tracking import open_store
from tests.postgresql import running_postgresql

from .serving import PASSWORD, Client, running_server

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture
def database() -> Iterator[str]:
    with running_postgresql() as server:
        yield server.create_database()


def events_of(client: Client, path: str) -> Iterator[tuple[str, object]]:
    """Yield the names and data of the live updates of a page."""
    with client.stream(path) as lines:
        name = ""
        for line in lines:
            kind, _, text = line.partition(": ")
            if kind == "event":
                name = text
            elif kind == "data":
                yield name, json.loads(text)


def test_two_servers_share_accounts_and_records(database: str) -> None:
    with open_store(database) as store:
        store.create_user("ann", role=Role.USER, password=hash_password(PASSWORD))
        store.create_user("root", role=Role.ADMIN, password=hash_password(PASSWORD))
    options = ("--store", database, "--users")
    with running_server(*options) as first, running_server(*options) as second:
        token = first.client.call("/api/login", {"user": "ann", "password": PASSWORD}).json["token"]
        other = second.client.with_headers(Authorization=f"Bearer {token}")
        assert other.get("/api/info").json["user"] == "ann"
        with open_store(f"{first.link}/?token={token}") as store:
            experiment = store.create_experiment(config={"name": "shared", "searcher": {"metric": "loss"}})
            trial = store.create_trial(experiment.id, hparams={"lr": 0.1}, seed=1)
            store.start_run(trial.id, allocation_id="one")
            updates = events_of(other, f"/live?experiments={experiment.id}&trials={trial.id}")
            assert next(updates)[0] == "rows"
            report = MetricsReport(
                trial_id=trial.id, run_id=1, group="validation", steps_completed=10, metrics={"loss": 0.25}
            )
            store.report_metrics([report])
            assert next(data for name, data in updates if name == "metrics") == [trial.id]
        with open_store(f"{second.link}/?token={token}") as store:
            assert [one.metrics for one in store.metrics(trial.id)] == [{"loss": 0.25}]
        first.client.with_headers(Authorization=f"Bearer {token}").call("/api/logout")
        assert other.get("/api/info").status == 401
